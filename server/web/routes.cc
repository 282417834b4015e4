#include "server/web/routes.h"

#include <fmt/format.h>

#include "server/auth/gate.h"
#include "server/web/downloads.h"
#include "server/web/errors.h"
#include "server/web/health_handler.h"
#include "server/web/metrics_page.h"
#include "server/web/openapi.h"
#include "server/web/pictures.h"
#include "server/web/report_handlers.h"
#include "server/web/scrape_targets.h"
#include "server/web/static_files.h"

namespace imgd::web {
namespace {

/// A job file of 1 MiB, each byte of which may be six in JSON.
constexpr size_t kMostStartBytes = size_t{6} << 20;
constexpr size_t kMostEventsBytes = size_t{4} << 20;

constexpr size_t kMostSessionBytes = 1024;

std::string CookieOf(const std::string& value, const char* more) {
  return fmt::format("{}={}; Path=/; Secure; HttpOnly; SameSite=Strict{}", kSessionCookie, value, more);
}

/// Answers a token with the cookie of a session, which the page's scripts can't read.
Handler BeginSession(Engine* engine, BrowserSessions* sessions) {
  return [engine, sessions](const Request& request, const Answer& answer) {
    const auto tokens = engine->View()->tokens;
    const auto token = tokens->find(request.token);
    if (!request.session.empty() || token == tokens->end()) {
      return answer(ErrorResponse(400, "INVALID_ARGUMENT",
                                  "a session begins with a token: \"Authorization: Bearer TOKEN\""));
    }
    const auto cookie = sessions->Begin(token->second);
    if (!cookie) return answer(ErrorResponse(cookie.error()));
    answer({.body = "{}", .headers = {{"Set-Cookie", CookieOf(*cookie, "")}}});
  };
}

/// Also for those who have none, or one that is over: the browser forgets its cookie, and the pictures and
/// pages that it keeps. Not what it stores: other tabs learn of the log-out by that.
Handler EndSession(Engine* engine, BrowserSessions* sessions, ReadPool* pool) {
  return [engine, sessions, pool](const Request& request, const Answer& answer) {
    const bool posted = pool->TryPost([engine, sessions, answer, cookie = request.cookie](Reader&) {
      const auto ended = sessions->End(*engine->View()->tokens, cookie);
      Response response = ended ? Response{.body = "{}"} : ErrorResponse(ended.error());
      response.headers.emplace_back("Set-Cookie", CookieOf("", "; Max-Age=0"));
      response.headers.emplace_back("Clear-Site-Data", "\"cache\"");
      answer(std::move(response));
    });
    if (!posted)
      answer(ErrorResponse(503, "RESOURCE_EXHAUSTED", "too many requests wait already; try again"));
  };
}

/// Where agents and imgcli reach the same imgd: pages know only their own address.
Handler ServerHandler(int grpc_port) {
  return [body = fmt::format("{{\"grpc_port\":{}}}", grpc_port)](const Request&, const Answer& answer) {
    answer({.body = body});
  };
}

}  // namespace

Router MakeRouter(const WebParts& parts) {
  Engine* engine = parts.engine;
  std::vector<Route> routes = {
      {"GET", "/healthz", Scope::kOpen, 0, Health(engine)},
      {"POST", "/api/v1/reports", Scope::kReport, kMostStartBytes, StartReport(engine)},
      {"POST", "/api/v1/reports/{job}/events", Scope::kReport, kMostEventsBytes, ReportEvents(engine)},
      {"POST", "/api/v1/session", Scope::kView, kMostSessionBytes, BeginSession(engine, parts.sessions)},
      {"DELETE", "/api/v1/session", Scope::kOpen, 0, EndSession(engine, parts.sessions, parts.pool)},
      {"GET", "/api/v1/server", Scope::kView, 0, ServerHandler(parts.grpc_port)},
      {"GET", "/api/v1/stream", Scope::kView, 0, StreamHandler(parts.feed)},
      {"GET", "/metrics", Scope::kView, 0, MetricsPage(engine, parts.calls, parts.notifier, parts.pool)},
      {"GET", "/sd/prometheus", Scope::kView, 0, ScrapeTargetsPage(engine, parts.tls)},
      {"GET", kRelayedMetricsPath, Scope::kView, 0, RelayedMetricsPage(engine)},
      {"GET", kCheckpointFilePath, Scope::kSubmit, 0, CheckpointFileHandler(parts.pool)},
      {"GET", kSamplePicturePath, Scope::kView, 0, SamplePictureHandler(parts.caller)},
      {"GET", kDatasetPicturePath, Scope::kView, 0, DatasetPictureHandler(parts.caller)},
      {"GET", "/api/v1/openapi.json", Scope::kOpen, 0, OpenApiHandler()},
  };
  for (auto& route : MakeApiRoutes(parts.caller, parts.pool)) routes.push_back(std::move(route));
  for (auto& route : StaticRoutes()) routes.push_back(std::move(route));
  const Gate gate(engine, parts.clock, parts.loopback, Scope::kView);
  return Router(
      std::move(routes), [gate](Scope scope, std::string_view secret) { return gate.LetIn(scope, secret); },
      [engine, sessions = parts.sessions](Scope scope, std::string_view cookie) {
        return sessions->LetIn(*engine->View()->tokens, scope, cookie);
      });
}

}  // namespace imgd::web
