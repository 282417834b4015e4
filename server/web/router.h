#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/error.h"
#include "server/auth/tokens.h"

/// Which handler answers an HTTP request, and whether the caller may ask it. No socket, clock or thread.
namespace imgd::web {

/// A request whose caller may make it.
struct Request {
  std::string path;
  std::string query;                              ///< without the '?'
  std::map<std::string, std::string> parameters;  ///< what stands for "{name}" in the route's pattern
  std::string body;
  std::string token;           ///< name of the caller's token; empty for an open call
  std::string cookie = {};     ///< of a browser's session, where no token was shown; may be of none
  std::string session = {};    ///< the session that the caller was let in by; empty: none
  Duration session_left = {};  ///< until it ends by itself
  // Of the headers of these names; may be empty.
  std::string last_event_id = {};
  std::string accept_encoding = {};
  std::string if_none_match = {};
  std::string host = {};  ///< by what address or name imgd was asked
  std::string range = {};
  std::string if_range = {};
};

/// A piece of a body that has no end, as it goes over the wire: made once for all who get it.
using Piece = std::shared_ptr<const std::string>;

/// A connection that such a body goes to. Thread-safe. It lives no longer than the connection: others hold it
/// weakly.
class Listener {
 public:
  virtual ~Listener() = default;
  /// Sends the piece after those before it; `then`, which may be empty, is called once it is on its way, and
  /// never where the connection ends before. One that has too much unsent already is ended.
  virtual void Send(Piece piece, std::function<void()> then) = 0;
};

/// A body that is read while it is sent, so that no more of it than a piece is in memory.
class BodySource {
 public:
  virtual ~BodySource() = default;
  /// Its whole length.
  virtual uint64_t bytes() const = 0;
  /// Must not block. `done` is called once, from any thread, with the next piece, which is never empty; not
  /// again after all bytes. With an error the connection ends, so that the caller sees that something lacks.
  virtual void Next(std::function<void(Result<std::string>)> done) = 0;
};

/// An answer.
struct Response {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
  /// Where set, the body has no end: it is what the listener, which this is called with, gets sent.
  std::function<void(std::shared_ptr<Listener>)> feed = {};
  /// Where set, the body is this instead of `body`.
  std::shared_ptr<BodySource> source = {};
};

/// To be called once, from any thread.
using Answer = std::function<void(Response)>;
/// Must not block: it runs on the server's I/O threads.
using Handler = std::function<void(Request, Answer)>;

/// A row of the table.
struct Route {
  std::string method;
  std::string pattern;  ///< "/api/v1/reports/{job}/events": a name in braces stands for one part of the path
  Scope scope = Scope::kOpen;
  size_t most_body_bytes = 0;
  Handler handler;
};

/// The first lines of a request, as far as they decide.
struct RequestHead {
  std::string_view method;
  std::string_view target;         ///< path and query
  std::string_view authorization;  ///< of the header; may be empty, as those that follow
  std::string_view host = {};
  std::string_view origin = {};
  std::string_view fetch_site = {};  ///< Sec-Fetch-Site
  std::string_view content_type = {};
  std::string_view last_event_id = {};
  std::string_view accept = {};
  std::string_view accept_encoding = {};
  std::string_view if_none_match = {};
  std::string_view range = {};
  std::string_view if_range = {};
  std::string_view cookie = {};
  std::string_view csrf = {};  ///< X-Imgd-Csrf, which a page of another origin can't send
};

/// Thread-safe.
class Router {
 public:
  /// Whether a token is good for a scope now; see Authorise() in server/auth/tokens.h.
  using Gate = std::function<Caller(Scope scope, std::string_view secret)>;
  /// The same of a session's cookie; see server/auth/browser_sessions.h.
  using SessionGate = std::function<Caller(Scope scope, std::string_view cookie)>;
  Router(std::vector<Route> routes, Gate gate, SessionGate sessions)
      : routes_(std::move(routes)), gate_(std::move(gate)), sessions_(std::move(sessions)) {}

  struct Match {
    const Route* route;  ///< lives as long as the router
    Request request;     ///< without its body
  };
  /// The only place that lets a call in. HEAD finds the route of GET. Refusals are answers: 401 without a
  /// good token, 403 for one of another scope, 404 (a page that says so, where a browser opens such an
  /// address), 405. A call that no token stands for but that is let in
  /// has to be one of this machine's own (403): to an address or to localhost, whatever name a page's author
  /// gave the address; and where it changes something, neither from a page of another origin (403) nor with a
  /// body that is not said to be JSON (415), which other pages can't send. In a token's place may be the
  /// cookie of a session; then what changes something also has to have X-Imgd-Csrf, and nothing comes from a
  /// page of another origin (403).
  tl::expected<Match, Response> Find(const RequestHead& head) const;
  /// The table.
  const std::vector<Route>& routes() const { return routes_; }

 private:
  std::vector<Route> routes_;
  Gate gate_;
  SessionGate sessions_;
};

/// Name of the cookie of a browser's session.
inline constexpr std::string_view kSessionCookie = "__Host-imgd";

}  // namespace imgd::web
