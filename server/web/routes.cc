#include "server/web/routes.h"

#include "server/web/health_handler.h"
#include "server/web/report_handlers.h"
#include "server/web/static_files.h"

namespace imgd::web {
namespace {

/// A job file of 1 MiB, each byte of which may be six in JSON.
constexpr size_t kMostStartBytes = size_t{6} << 20;
constexpr size_t kMostEventsBytes = size_t{4} << 20;

}  // namespace

Router MakeRouter(Engine* engine, const Clock* clock) {
  std::vector<Route> routes = {
      {"GET", "/healthz", Scope::kOpen, 0, Health(engine)},
      {"POST", "/api/v1/reports", Scope::kReport, kMostStartBytes, StartReport(engine)},
      {"POST", "/api/v1/reports/{job}/events", Scope::kReport, kMostEventsBytes, ReportEvents(engine)},
  };
  for (auto& route : StaticRoutes()) routes.push_back(std::move(route));
  return Router(std::move(routes), [engine, clock](Scope scope, std::string_view secret) {
    return Authorise(*engine->View()->tokens, scope, secret, clock->Wall());
  });
}

}  // namespace imgd::web
