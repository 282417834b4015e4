#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "common/error.h"
#include "common/remote/http_client.h"

namespace imgd {

/// What a cloud tells a machine of itself: EC2's instance metadata service, version 2, which wants a token of
/// its own with each request
/// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html).
/// One owner thread.
class InstanceMetadata {
 public:
  static constexpr const char* kAddress = "http://169.254.169.254";

  /// `endpoint`: "http://HOST[:PORT]"; no proxy is asked.
  explicit InstanceMetadata(std::string endpoint, HttpOptions options = {});

  /// Gets a token where it has none. Errors: kUnavailable where there is no such service, or it gives none.
  Status Begin(std::stop_token stop = {});

  /// What is at a path, "/latest/meta-data/instance-life-cycle", at most 64 KiB; nothing where it has nothing
  /// there. Errors: kUnavailable; kDataLoss.
  Result<std::optional<std::string>> Get(const std::string& path, std::stop_token stop = {});

 private:
  struct Answer {
    int status = 0;
    std::string content;
  };
  Result<Answer> Ask(const char* method, const std::string& path, HttpHeaders headers, std::stop_token stop);

  std::string endpoint_;
  HttpClient client_;
  std::string token_;  ///< empty: none, or an old one
};

}  // namespace imgd
