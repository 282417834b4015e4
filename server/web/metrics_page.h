#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "server/engine/engine.h"
#include "server/engine/read_pool.h"
#include "server/rpc/call_times.h"
#include "server/web/router.h"

namespace imgd::web {

/// The cluster's metrics of docs/metrics.md. Pure.
void AddFigures(const EngineFigures& figures, MetricFamilies& families);

/// GET /metrics: the cluster, the calls and the process; what is of the cluster is of one moment. All three
/// must outlive it.
Handler MetricsPage(Engine* engine, const CallTimes* calls, ReadPool* pool);

}  // namespace imgd::web
