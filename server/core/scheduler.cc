#include "server/core/scheduler.h"

#include <algorithm>
#include <optional>
#include <tuple>

namespace imgd {
namespace {

/// The nodes, by their places in the list, in groups that see the same folder; one group where that does not
/// matter. Only that of `with` where it is named.
std::vector<std::vector<size_t>> GroupsOf(const std::vector<NodeSlots>& nodes, const std::string& folder,
                                          const NodeId& with) {
  std::vector<size_t> numbers(nodes.size(), 0);
  if (!folder.empty()) {
    std::vector<FolderView> views;
    views.reserve(nodes.size());
    for (const auto& node : nodes) views.push_back(node.view);
    numbers = FolderGroups(views, folder);
  }
  std::map<size_t, std::vector<size_t>> groups;
  std::optional<size_t> wanted;
  for (size_t i = 0; i < nodes.size(); ++i) {
    groups[numbers[i]].push_back(i);
    if (!folder.empty() && nodes[i].id == with) wanted = numbers[i];
  }
  std::vector<std::vector<size_t>> out;
  for (auto& [number, members] : groups) {
    if (!wanted || number == *wanted) out.push_back(std::move(members));
  }
  return out;
}

/// Nodes for the gang, the fullest first, so that whole nodes stay free for those who need them; nothing when
/// it does not fit.
std::optional<std::vector<Part>> Place(Snapshot& cluster, const QueuedJob& job) {
  std::vector<NodeSlots*> fitting;
  for (const auto& group : GroupsOf(cluster.nodes, job.folder, job.resumes_with)) {
    fitting.clear();
    for (const size_t i : group) {
      NodeSlots& node = cluster.nodes[i];
      if (node.usable && node.Free() >= job.ranks_per_node) fitting.push_back(&node);
    }
    if (fitting.size() >= job.nodes) break;
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

/// FitOf for each shape of gang, worked out once.
class Fits {
 public:
  explicit Fits(const Snapshot& cluster) : cluster_(cluster) {}
  const Fit& Of(const QueuedJob& job) {
    const auto key = std::tuple(job.ranks_per_node, job.folder, job.resumes_with);
    auto known = fits_.find(key);
    if (known == fits_.end()) {
      known = fits_.emplace(key, FitOf(cluster_, job.ranks_per_node, job.folder, job.resumes_with)).first;
    }
    return known->second;
  }

 private:
  const Snapshot& cluster_;
  std::map<std::tuple<uint32_t, std::string, NodeId>, Fit> fits_;
};

ReasonCode WhyNot(const QueuedJob& job, const Snapshot& cluster, Fits& fits) {
  if (cluster.nodes.empty()) return ReasonCode::kNoNodes;
  const Fit& fit = fits.Of(job);
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

Fit FitOf(const Snapshot& cluster, uint32_t ranks_per_node, const std::string& folder,
          const NodeId& resumes_with) {
  Fit best;
  for (const auto& group : GroupsOf(cluster.nodes, folder, resumes_with)) {
    Fit fit;
    for (const size_t i : group) {
      const NodeSlots& node = cluster.nodes[i];
      if (node.devices.size() < ranks_per_node) continue;
      ++fit.with_lost;
      if (!node.lost) ++fit.known;
      if (node.usable && node.Free() >= ranks_per_node) ++fit.free_now;
    }
    best.free_now = std::max(best.free_now, fit.free_now);
    best.known = std::max(best.known, fit.known);
    best.with_lost = std::max(best.with_lost, fit.with_lost);
  }
  return best;
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
      } else if (fits.Of(job).known >= job.nodes) {
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
