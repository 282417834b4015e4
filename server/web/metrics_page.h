#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "server/engine/engine.h"
#include "server/engine/read_pool.h"
#include "server/notify/notifier.h"
#include "server/rpc/call_times.h"
#include "server/web/router.h"

namespace imgd::web {

/// The cluster's metrics of docs/metrics.md. Pure.
void AddFigures(const EngineFigures& figures, MetricFamilies& families);

/// The same of notifications.
void AddNotifications(const std::map<std::string, NotifyCounts>& targets, MetricFamilies& families);

/// GET /metrics: the cluster, the calls, notifications and the process; what is of the cluster is of one
/// moment. All four must outlive it.
Handler MetricsPage(Engine* engine, const CallTimes* calls, const Notifier* notifier, ReadPool* pool);

}  // namespace imgd::web
