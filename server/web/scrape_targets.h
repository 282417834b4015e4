#pragma once

#include <optional>
#include <string>

#include "server/engine/engine.h"
#include "server/web/router.h"

namespace imgd::web {

/// How Prometheus reaches imgd, which is where it finds agents that nobody dials.
struct OwnAddress {
  std::string host;  ///< as it asked: "gpu-head:7651"
  bool tls = false;
};

/// Which agents are asked for.
enum class Targets { kAll, kDialled, kRelayed };

/// The agents that show metrics, as Prometheus' HTTP service discovery takes them: a JSON array, one object a
/// node with its address and labels. One that imgd asks in Prometheus' place has imgd's own address, and the
/// path there. Lost nodes are left out. Nothing while a node that was there when the daemon began has not
/// said yet where its metrics are, and is not lost: Prometheus keeps to the list before then, which has it.
std::optional<std::string> ScrapeTargets(const ClusterView& view, const std::string& cluster_id,
                                         const OwnAddress& own, Targets which);

/// GET /sd/prometheus; `relayed=true` or `relayed=false` in its query leaves the others out.
Handler ScrapeTargetsPage(Engine* engine, bool tls);

inline constexpr const char* kRelayedMetricsPath = "/metrics/nodes/{name}";

/// GET of that: what the node's agent shows, asked over its stream.
Handler RelayedMetricsPage(Engine* engine);

}  // namespace imgd::web
