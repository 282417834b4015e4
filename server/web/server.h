#pragma once

#include <memory>
#include <string>

#include "common/clock.h"
#include "common/error.h"
#include "server/auth/tokens.h"
#include "server/web/router.h"

namespace imgd::web {

/// Where it serves, and what a caller may take of it.
struct WebSettings {
  std::string listen;       ///< "host:port"; port 0 takes a free one
  std::string certificate;  ///< PEM file, the chain included; empty: plain HTTP
  std::string key;          ///< its key, PEM
  int threads = 2;
  size_t most_connections =
      512;                       ///< beyond them one that waits for a request gives way; else more are closed
  size_t most_listeners = 4096;  ///< of answers that have no end, beside those; more get 503
  size_t most_unsent_bytes = 512 << 10;  ///< of such an answer, behind the piece being sent; more: it ends
  size_t most_downloads = 32;            ///< bodies that are read while they are sent; more get 503
  size_t most_in_flight = 256;           ///< requests that wait for their answer; more get 503
  size_t most_header_bytes = 16 << 10;
  Duration handshake_limit = std::chrono::seconds(10);
  Duration head_limit = std::chrono::seconds(10);  ///< for the first request's head to be there
  Duration idle_limit = std::chrono::seconds(75);  ///< for the next one's, on a connection that is kept
  Duration body_limit = std::chrono::seconds(30);
  Duration write_limit = std::chrono::seconds(30);
};

/// An HTTP/1.1 server: HTTPS with a certificate, else plain. Asynchronous, on a few threads of its own, which
/// never wait for an answer. A body is read only when the router lets its caller in.
class WebServer {
 public:
  /// What the router's handlers use must outlive Stop(). Errors: kAlreadyExists when the address is in use,
  /// kUnavailable when it is none of this machine, kFailedPrecondition for a certificate or key that
  /// can't be used; all name the address or file.
  static Result<std::unique_ptr<WebServer>> Start(const WebSettings& settings, Router router);
  /// Whether the settings' certificate and key can be used; no more than that. Errors: as Start().
  static Status CheckCertificate(const WebSettings& settings);
  /// Answers may still be given after Stop() and after this, and go nowhere.
  ~WebServer();

  int port() const;

  /// New connections get the certificate that is in the settings' files now; where these can't be used, the
  /// log says so and the old one stays. From any thread, before Stop().
  void ReloadCertificate();
  /// Ends the answers without an end, and files that are being sent, that were asked for with tokens that
  /// are over. From any thread.
  void EndListenersOf(const IsTokenOver& is_over);
  /// The same of a browser's session, as Request::session has it.
  void EndListenersOfSession(const std::string& session);

  /// Takes no more connections, waits up to `patience` for the answers that are under way, and ends.
  void Stop(Duration patience);

 private:
  struct Parts;
  explicit WebServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace imgd::web
