#include "server/web/router.h"

#include <arpa/inet.h>

#include <optional>
#include <set>

#include "common/text.h"
#include "common/utf8.h"
#include "server/auth/gate.h"
#include "server/web/errors.h"
#include "server/web/static_files.h"

namespace imgd::web {
namespace {

std::vector<std::string_view> PartsOf(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    path.remove_prefix(1);  // the slash
    const size_t end = std::min(path.find('/'), path.size());
    parts.push_back(path.substr(0, end));
    path.remove_prefix(end);
  }
  return parts;
}

/// What the names in the pattern stand for; nothing when the path is another.
std::optional<std::map<std::string, std::string>> MatchPath(std::string_view pattern, std::string_view path) {
  const auto wanted = PartsOf(pattern);
  const auto found = PartsOf(path);
  if (wanted.size() != found.size()) return std::nullopt;
  std::map<std::string, std::string> parameters;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto part = wanted[i];
    if (part.starts_with('{') && part.ends_with('}')) {
      if (found[i].empty()) return std::nullopt;
      parameters.emplace(part.substr(1, part.size() - 2), found[i]);
    } else if (part != found[i]) {
      return std::nullopt;
    }
  }
  return parameters;
}

Response NotLetIn(const Caller& caller, Scope scope) {
  const Error why = WhyRefused(caller, scope);
  return caller.refusal == Refusal::kWrongScope
             ? ErrorResponse(403, "PERMISSION_DENIED", why.message, why.hint)
             : ErrorResponse(401, "UNAUTHENTICATED", why.message, why.hint);
}

/// "localhost:80" without the port, "[::1]:80" without that and the brackets.
std::string_view NameOfHost(std::string_view host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.rfind(':'));
}

bool IsThisMachine(std::string_view host) {
  const std::string name = Lower(NameOfHost(host));
  in6_addr address{};
  return name == "localhost" || name.ends_with(".localhost") ||
         ::inet_pton(AF_INET, name.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

bool IsSameOrigin(const RequestHead& head) {
  if (!head.fetch_site.empty() && head.fetch_site != "same-origin" && head.fetch_site != "none") return false;
  if (head.origin.empty()) return true;
  const size_t slashes = head.origin.find("://");
  return slashes != std::string_view::npos && head.origin.substr(slashes + 3) == head.host;
}

/// The cookie of the session; empty where there is none.
std::string_view SessionOf(std::string_view cookies) {
  while (!cookies.empty()) {
    const size_t end = std::min(cookies.find(';'), cookies.size());
    const std::string_view cookie = Trimmed(cookies.substr(0, end));
    if (cookie.starts_with(kSessionCookie) && cookie.substr(kSessionCookie.size()).starts_with('='))
      return cookie.substr(kSessionCookie.size() + 1);
    cookies.remove_prefix(std::min(end + 1, cookies.size()));
  }
  return {};
}

/// HEAD is GET whose answer's body is not sent.
std::string_view MethodOf(const RequestHead& head) { return head.method == "HEAD" ? "GET" : head.method; }

/// Of a call that a cookie stands for, which browsers send whoever asks them to.
std::optional<Response> NotOfThisPage(const RequestHead& head) {
  if (!IsSameOrigin(head))
    return ErrorResponse(403, "PERMISSION_DENIED", "a page of another origin may not use this session");
  if (MethodOf(head) == "GET" || !head.csrf.empty()) return std::nullopt;
  return ErrorResponse(403, "PERMISSION_DENIED",
                       "a session changes something with the header X-Imgd-Csrf only");
}

/// Of a call that is let in though no token stands for it.
std::optional<Response> NotFromHere(const RequestHead& head) {
  if (!IsThisMachine(head.host)) {
    return ErrorResponse(403, "PERMISSION_DENIED",
                         "without a token imgd is asked by an address or as localhost, and by no other name",
                         "imgcli token create --scope view");
  }
  if (MethodOf(head) == "GET") return std::nullopt;
  if (!IsSameOrigin(head))
    return ErrorResponse(403, "PERMISSION_DENIED", "a page of another origin may change nothing here");
  const bool json = Lower(head.content_type.substr(0, head.content_type.find(';'))) == "application/json";
  if (head.method == "POST" && !json) {
    return ErrorResponse(415, "INVALID_ARGUMENT",
                         fmt::format("found the Content-Type '{}'; application/json is needed",
                                     ToUtf8(std::string(head.content_type))));
  }
  return std::nullopt;
}

/// Whoever asks by hand for an address that there is not: browsers name HTML for what is opened, and for
/// nothing that a page loads. Below /api programs ask.
bool IsOpenedInABrowser(const RequestHead& head, std::string_view path) {
  return MethodOf(head) == "GET" && !path.starts_with("/api/") &&
         Lower(head.accept).find("text/html") != std::string::npos;
}

}  // namespace

tl::expected<Router::Match, Response> Router::Find(const RequestHead& head) const {
  const size_t mark = std::min(head.target.find('?'), head.target.size());
  const std::string_view path = head.target.substr(0, mark);
  std::set<std::string> methods;
  for (const auto& route : routes_) {
    auto parameters = path.starts_with('/') ? MatchPath(route.pattern, path) : std::nullopt;
    if (!parameters) continue;
    methods.insert(route.method);
    if (route.method == "GET") methods.insert("HEAD");
    if (route.method != MethodOf(head)) continue;
    const std::string_view bearer = BearerOf(head.authorization);
    std::string_view session = bearer.empty() ? SessionOf(head.cookie) : std::string_view();
    Caller caller = session.empty() ? gate_(route.scope, bearer) : sessions_(route.scope, session);
    // One that is over is in nobody's way where none is needed.
    if (caller.refusal == Refusal::kSessionOver) {
      if (Caller without = gate_(route.scope, ""); without.refusal == Refusal::kNone) {
        caller = std::move(without);
        session = {};
      }
    }
    if (caller.refusal != Refusal::kNone) return tl::unexpected(NotLetIn(caller, route.scope));
    const bool ends_session = !session.empty() && MethodOf(head) != "GET";  // though it is open to all
    if (bearer.empty() && (route.scope != Scope::kOpen || ends_session)) {
      auto refusal = session.empty() ? NotFromHere(head) : NotOfThisPage(head);
      if (refusal) return tl::unexpected(std::move(*refusal));
    }
    Request request{.path = std::string(path),
                    .query = std::string(head.target.substr(std::min(mark + 1, head.target.size()))),
                    .parameters = std::move(*parameters),
                    .body = {},
                    .token = std::move(caller.token),
                    .cookie = std::string(session),
                    .session = std::move(caller.session),
                    .session_left = caller.session_left,
                    .last_event_id = std::string(head.last_event_id),
                    .accept_encoding = std::string(head.accept_encoding),
                    .if_none_match = std::string(head.if_none_match),
                    .host = std::string(head.host),
                    .range = std::string(head.range),
                    .if_range = std::string(head.if_range)};
    return Match{&route, std::move(request)};
  }
  if (methods.empty() && IsOpenedInABrowser(head, path))
    return tl::unexpected(MissingPage(head.accept_encoding));
  if (methods.empty())
    return tl::unexpected(ErrorResponse(404, "NOT_FOUND", "there is nothing at this path"));
  Response refusal = ErrorResponse(405, "METHOD_NOT_ALLOWED", "this path takes another method");
  std::string allowed;
  for (const auto& method : methods) allowed += (allowed.empty() ? "" : ", ") + method;
  refusal.headers.emplace_back("Allow", std::move(allowed));
  return tl::unexpected(std::move(refusal));
}

}  // namespace imgd::web
