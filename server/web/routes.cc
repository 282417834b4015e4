#include "server/web/routes.h"

#include <algorithm>

#include "server/web/health_handler.h"
#include "server/web/metrics_page.h"
#include "server/web/openapi.h"
#include "server/web/report_handlers.h"
#include "server/web/scrape_targets.h"
#include "server/web/static_files.h"

namespace imgd::web {
namespace {

/// A job file of 1 MiB, each byte of which may be six in JSON.
constexpr size_t kMostStartBytes = size_t{6} << 20;
constexpr size_t kMostEventsBytes = size_t{4} << 20;

/// Whether somebody has a token for what is neither open nor a report.
bool HasApiToken(const std::map<std::string, TokenRecord>& tokens) {
  return std::any_of(tokens.begin(), tokens.end(),
                     [](const auto& token) { return Allows(token.second.scopes, Scope::kView); });
}

Caller LetIn(const WebParts& parts, Scope scope, std::string_view secret) {
  const auto tokens = parts.engine->View()->tokens;
  if (parts.loopback && scope != Scope::kReport && secret.empty() && !HasApiToken(*tokens)) return {};
  return Authorise(*tokens, scope, secret, parts.clock->Wall());
}

}  // namespace

Router MakeRouter(const WebParts& parts) {
  Engine* engine = parts.engine;
  std::vector<Route> routes = {
      {"GET", "/healthz", Scope::kOpen, 0, Health(engine)},
      {"POST", "/api/v1/reports", Scope::kReport, kMostStartBytes, StartReport(engine)},
      {"POST", "/api/v1/reports/{job}/events", Scope::kReport, kMostEventsBytes, ReportEvents(engine)},
      {"GET", "/api/v1/stream", Scope::kView, 0, StreamHandler(parts.feed)},
      {"GET", "/metrics", Scope::kView, 0, MetricsPage(engine, parts.calls, parts.pool)},
      {"GET", "/sd/prometheus", Scope::kView, 0, ScrapeTargetsPage(engine)},
      {"GET", "/api/v1/openapi.json", Scope::kOpen, 0, OpenApiHandler()},
  };
  for (auto& route : MakeApiRoutes(parts.caller, parts.pool)) routes.push_back(std::move(route));
  for (auto& route : StaticRoutes()) routes.push_back(std::move(route));
  return Router(std::move(routes),
                [parts](Scope scope, std::string_view secret) { return LetIn(parts, scope, secret); });
}

}  // namespace imgd::web
