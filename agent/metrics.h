#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "agent/gpu.h"
#include "agent/node_figures.h"
#include "agent/run_dir.h"
#include "agent/run_meter.h"
#include "imgd/v1/node.pb.h"

namespace imgd {

/// A run that lives on this node.
struct LiveRun {
  RunKey key;
  uint32_t running_ranks = 0;       ///< here, now
  std::vector<RankFigures> ranks;   ///< this node's
  bool trains = true;               ///< it is no command or server, whose ranks report nothing
  std::set<uint32_t> devices = {};  ///< this node's that it has, by index
  bool has_rank_0 = true;           ///< its node shows the job, and no other
  uint32_t ranks_elsewhere = 0;     ///< of the gang, on other nodes
};

/// All that /metrics shows, taken at one moment.
struct NodeSnapshot {
  std::vector<LiveRun> runs;
  std::set<uint32_t> held;           ///< devices that runs have, by index
  std::vector<v1::Device> gpus;      ///< none on CPU slots
  std::vector<GpuReading> readings;  ///< in their order; none before the first
  NodeFigures machine;
};

/// The metrics of docs/metrics.md. Pure. A figure that nobody knows is left out, never shown as 0; a family
/// without any figure too.
std::vector<prometheus::MetricFamily> ToFamilies(const NodeSnapshot& node);

/// The same in Prometheus' text format, version 0.0.4.
std::string ToMetricsText(const NodeSnapshot& node);

}  // namespace imgd
