#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/url.h"

namespace imgd {

using Milliseconds = std::chrono::milliseconds;

/// How long what is waited for, and who is told.
struct HttpOptions {
  Milliseconds connect{10'000};   ///< for a connection, with name look-up and TLS
  Milliseconds stall{15'000};     ///< with less than a KiB either way, once connected: the try has failed
  Milliseconds whole{0};          ///< for a try from its begin to its end; 0: as long as it goes on
  Milliseconds patience{60'000};  ///< of failed tries without progress, then the read fails
  Milliseconds first_patience{4'000};              ///< the same for a server that was never reached
  Milliseconds first_wait{100};                    ///< between tries; doubles, up to five seconds
  Milliseconds quiet{3'000};                       ///< of trying before `notice` is called, once in a read
  bool direct = false;                             ///< never by a proxy
  std::string ca_file;                             ///< certificates to trust; empty: the system's
  std::function<void(const std::string&)> notice;  ///< told in words; from any thread
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method = "GET";
  Url url;
  HttpHeaders headers;
  std::string_view body;  ///< of PUT and POST; must outlive the request
  bool follow = true;     ///< redirects, at most five, to http and https, never from https to http
  std::stop_token stop;   ///< breaks the request off, at once
};

struct HttpAnswer {
  int status = 0;
  HttpHeaders headers;  ///< names in lower case
  std::string excerpt;  ///< at most 4 KiB of a body that nobody asked for
  /// Empty when there is none.
  std::string header(std::string_view name) const;
};

/// Takes a line of an answer's head, its end included: the status, which drops the headers of an answer that
/// came before ("100 Continue"), or a header. What is neither is passed over.
void TakeHeaderLine(std::string_view line, HttpAnswer& answer);

/// Where an answer's body goes. Both may refuse, which ends the request with that error.
struct HttpBody {
  /// The answer's head is there. True: the body is wanted; false: only an excerpt of it is kept.
  std::function<Result<bool>(const HttpAnswer&)> begin;
  std::function<Status(std::span<const uint8_t>)> take;
};

/// A try that failed.
struct HttpTrouble {
  enum class Kind { kFinal, kRetry, kUnreachable };  ///< kUnreachable: no connection, no such host
  Error error;
  Kind kind = Kind::kFinal;
  Milliseconds wait{0};  ///< what the server asked for (Retry-After)
};

/// Speaks HTTP/1.1 over connections that are kept and shared. The usual variables name a proxy. All calls may
/// come from any thread.
class HttpClient {
 public:
  explicit HttpClient(HttpOptions options);
  ~HttpClient();

  const HttpOptions& options() const { return options_; }

  /// One request, with its redirects. Any status is an answer, not a trouble. An "authorization" header is
  /// not sent on to another host.
  tl::expected<HttpAnswer, HttpTrouble> Try(HttpRequest request, const HttpBody& body) const;

 private:
  class Pool;
  HttpOptions options_;
  std::unique_ptr<Pool> pool_;
};

/// Decides, try after try, whether there is another one, and waits before it.
class Patience {
 public:
  /// `name`: of what is read, for messages, or what `verb` says. `known`: the server has answered before.
  Patience(const HttpOptions& options, std::string name, bool known, const char* verb = "read")
      : options_(options), name_(std::move(name)), verb_(verb), known_(known), wait_(options.first_wait) {}

  /// The server answered, with something of use: a fresh start.
  void Progress();
  /// Waits; then nothing, or the error to end with.
  std::optional<Error> Again(const HttpTrouble& trouble, const std::stop_token& stop);

 private:
  using Clock = std::chrono::steady_clock;
  const HttpOptions& options_;
  std::string name_;
  const char* verb_;
  bool known_;
  bool told_ = false;
  int tries_ = 0;
  Milliseconds wait_;
  std::optional<Clock::time_point> since_;
};

}  // namespace imgd
