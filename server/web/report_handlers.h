#pragma once

#include "server/engine/engine.h"
#include "server/web/router.h"

/// What runs that somebody started by hand tell (proto/imgd/v1/report.proto). The engine must outlive the
/// handlers; it answers them once what they brought is durable.
namespace imgd::web {

/// A StartReportRequest.
Handler StartReport(Engine* engine);

/// A ReportEventsRequest for the job "{job}" of the path.
Handler ReportEvents(Engine* engine);

}  // namespace imgd::web
