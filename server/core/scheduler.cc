#include "server/core/scheduler.h"

#include <algorithm>
#include <optional>

namespace imgd {
namespace {

/// Nodes for the gang, the fullest first, so that whole nodes stay free for those who need them; nothing when
/// it does not fit.
std::optional<std::vector<Part>> Place(Snapshot& cluster, const QueuedJob& job) {
  std::vector<NodeSlots*> fitting;
  for (auto& node : cluster.nodes) {
    if (node.usable && node.Free() >= job.ranks_per_node) fitting.push_back(&node);
  }
  if (fitting.size() < job.nodes) return std::nullopt;
  std::stable_sort(fitting.begin(), fitting.end(),
                   [](const NodeSlots* a, const NodeSlots* b) { return a->Free() < b->Free(); });
  fitting.resize(job.nodes);
  // Ranks go by node name, so that a gang's layout can be told by looking at it.
  std::sort(fitting.begin(), fitting.end(),
            [](const NodeSlots* a, const NodeSlots* b) { return a->id < b->id; });
  std::vector<Part> parts;
  uint32_t rank = 0;
  for (auto* node : fitting) {
    Part part{.node = node->id, .first_rank = rank};
    for (size_t i = 0; i < node->devices.size() && part.devices.size() < job.ranks_per_node; ++i) {
      if (node->holders[i] != JobId()) continue;
      node->holders[i] = job.id;
      part.devices.push_back(node->devices[i]);
    }
    rank += job.ranks_per_node;
    parts.push_back(std::move(part));
  }
  return parts;
}

/// FitOf for each gang width, worked out once.
class Fits {
 public:
  explicit Fits(const Snapshot& cluster) : cluster_(cluster) {}
  const Fit& Of(uint32_t ranks_per_node) {
    auto known = fits_.find(ranks_per_node);
    if (known == fits_.end()) {
      known = fits_.emplace(ranks_per_node, FitOf(cluster_, ranks_per_node)).first;
    }
    return known->second;
  }

 private:
  const Snapshot& cluster_;
  std::map<uint32_t, Fit> fits_;
};

ReasonCode WhyNot(const QueuedJob& job, const Snapshot& cluster, Fits& fits) {
  if (cluster.nodes.empty()) return ReasonCode::kNoNodes;
  const Fit& fit = fits.Of(job.ranks_per_node);
  return fit.with_lost < job.nodes ? ReasonCode::kNeverFits : ReasonCode::kWaitsForDevices;
}

}  // namespace

uint32_t NodeSlots::Free() const {
  return static_cast<uint32_t>(std::count(holders.begin(), holders.end(), JobId()));
}

void NodeSlots::Take(JobId job, const std::vector<uint32_t>& indexes) {
  for (size_t i = 0; i < devices.size(); ++i) {
    const bool wanted = std::find(indexes.begin(), indexes.end(), devices[i]) != indexes.end();
    if (wanted && holders[i] == JobId()) holders[i] = job;
  }
}

Fit FitOf(const Snapshot& cluster, uint32_t ranks_per_node) {
  Fit fit;
  for (const auto& node : cluster.nodes) {
    if (node.devices.size() < ranks_per_node) continue;
    ++fit.with_lost;
    if (!node.lost) ++fit.known;
    if (node.usable && node.Free() >= ranks_per_node) ++fit.free_now;
  }
  return fit;
}

Plan MakePlan(Snapshot cluster, const std::vector<QueuedJob>& queue, Instant now) {
  Plan plan;
  Fits fits(cluster);  // of what a node has, which placing does not change, not of what is free
  for (const auto& job : queue) {
    const bool retries_later = job.not_before > now;
    if (retries_later && job.code != ReasonCode::kBackoff) {
      plan.waits.push_back({job.id, ReasonCode::kBackoff});
    }
    if (retries_later && !job.keeps_place) continue;
    if (plan.blocker == JobId()) {
      if (auto parts = Place(cluster, job)) {
        (retries_later ? plan.kept : plan.starts).push_back({job.id, std::move(*parts)});
        continue;
      }
    }
    ReasonCode code = WhyNot(job, cluster, fits);
    if (code == ReasonCode::kWaitsForDevices) {
      if (plan.blocker != JobId()) {
        code = ReasonCode::kWaitsBehindJob;
      } else if (fits.Of(job.ranks_per_node).known >= job.nodes) {
        plan.blocker = job.id;
      }
      // A gang that only lost nodes would complete waits for them, but holds up nobody: they may never
      // return.
    }
    if (!retries_later && job.code != code) plan.waits.push_back({job.id, code});
  }
  return plan;
}

}  // namespace imgd
