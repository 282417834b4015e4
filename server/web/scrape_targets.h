#pragma once

#include <optional>
#include <string>

#include "server/engine/engine.h"
#include "server/web/router.h"

namespace imgd::web {

/// The agents that show metrics, as Prometheus' HTTP service discovery takes them: a JSON array, one object a
/// node with its address and labels. Lost nodes are left out. Nothing while a node that was there when the
/// daemon began has not said yet where its metrics are: Prometheus keeps to the list before then.
std::optional<std::string> ScrapeTargets(const ClusterView& view, const std::string& cluster_id);

/// GET /sd/prometheus.
Handler ScrapeTargetsPage(Engine* engine);

}  // namespace imgd::web
