#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "common/error.h"

namespace imgd::report {

/// An answer, whatever its status says.
struct PostAnswer {
  int status = 0;
  std::string body;                     ///< at most 1 MiB of it
  std::chrono::seconds retry_after{0};  ///< what the server asked for
};

/// Sends JSON by POST, with a token, over one connection that is kept. Redirects are not followed; of a plain
/// http address no proxy is asked. One call at a time.
class HttpPost {
 public:
  struct Options {
    std::string token;    ///< sent as "Authorization: Bearer"
    std::string ca_file;  ///< PEM file of certificates to trust instead of the system's; empty: the system's
    std::chrono::milliseconds connect_limit{5'000};
    std::chrono::milliseconds limit{20'000};  ///< for the whole request
  };
  explicit HttpPost(Options options);
  ~HttpPost();

  /// `url` is http or https. Errors: kUnavailable for what another try may outlive; kFailedPrecondition for a
  /// certificate that is not trusted; kCancelled after `stop`.
  Result<PostAnswer> Post(const std::string& url, const std::string& body, const std::stop_token& stop);

 private:
  struct Handles;
  const Options options_;
  std::unique_ptr<Handles> handles_;
};

}  // namespace imgd::report
