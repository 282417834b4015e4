#include "server/core/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace imgd {
namespace {

std::string Count(uint64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

Fit FitOfGang(const Snapshot& cluster, const Waiting& job) {
  return FitOf(cluster, job.ranks_per_node, job.folder, job.resumes_with);
}

/// "needs 2 nodes with 1 free device each"; `adjective` is "free " or nothing. Where some nodes do not count
/// because of their folders, it says so.
std::string Needs(const Snapshot& cluster, const Waiting& job, std::string_view adjective) {
  std::string text = fmt::format("needs {} with {} {}device{} each", Count(job.nodes, "node"),
                                 job.ranks_per_node, adjective, job.ranks_per_node == 1 ? "" : "s");
  if (FitOfGang(cluster, job).with_lost < FitOf(cluster, job.ranks_per_node).with_lost) {
    text += fmt::format(" that share {}", job.folder);
    if (job.resumes_with != NodeId()) text += fmt::format(" with {}", job.resumes_with);
  }
  return text;
}

std::string NameOfJob(const Snapshot& cluster, JobId id) {
  if (id == kForeignHolder) return "a run of another cluster";
  const auto name = cluster.job_names.find(id);
  return name == cluster.job_names.end() ? fmt::format("job {}", id)
                                         : fmt::format("job {} ({})", id, name->second);
}

/// "job 3 (rn50-a) holds gpu-1, gpu-2", for the jobs in the way, by number; at most three of them.
std::vector<std::string> Holders(const Snapshot& cluster, const Waiting& job) {
  std::map<JobId, std::vector<std::string>> held;
  for (const auto& node : cluster.nodes) {
    if (!node.usable || node.devices.size() < job.ranks_per_node || node.Free() >= job.ranks_per_node)
      continue;
    for (const JobId holder : node.holders) {
      if (holder == JobId()) continue;
      auto& names = held[holder];
      if (names.empty() || names.back() != node.id.name()) names.push_back(node.id.name());
    }
  }
  std::vector<std::string> out;
  constexpr size_t kMost = 3;
  for (auto& [holder, names] : held) {
    if (out.size() == kMost) {
      out.push_back(fmt::format("{} hold the rest", Count(held.size() - kMost, "more job")));
      break;
    }
    const size_t more = names.size() > kMost ? names.size() - kMost : 0;
    names.resize(names.size() - more);
    out.push_back(fmt::format(
        "{} {} {}{}", NameOfJob(cluster, holder),
        cluster.retrying.contains(holder) ? "starts again soon and comes first on" : "holds",
        fmt::join(names, ", "), more > 0 ? fmt::format(" and {}", Count(more, "more node")) : ""));
  }
  return out;
}

/// Nodes that would do, but take nothing now; at most three of them.
std::vector<std::string> Unusable(const Snapshot& cluster, const Waiting& job) {
  std::vector<std::string> out;
  for (const auto& node : cluster.nodes) {
    if (node.usable || node.devices.size() < job.ranks_per_node || out.size() == 3) continue;
    out.push_back(fmt::format("node {} {}", node.id, node.why_not));
  }
  return out;
}

std::string ExplainDevices(const Snapshot& cluster, const Waiting& job) {
  const Fit fit = FitOfGang(cluster, job);
  std::vector<std::string> parts = {Needs(cluster, job, "free ")};
  parts.push_back(fit.free_now == 1 ? "1 is free" : fmt::format("{} are free", fit.free_now));
  for (auto& text : Holders(cluster, job)) parts.push_back(std::move(text));
  for (auto& text : Unusable(cluster, job)) parts.push_back(std::move(text));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string ExplainNeverFits(const Snapshot& cluster, const Waiting& job) {
  const Fit fit = FitOfGang(cluster, job);
  size_t most = 0;
  for (const auto& node : cluster.nodes) most = std::max(most, node.devices.size());
  return fmt::format(
      "{}; of the {} known {} that many, and the most on one node is {}; add nodes or submit a smaller gang",
      Needs(cluster, job, ""), Count(cluster.nodes.size(), "node"),
      fit.with_lost == 1 ? "1 has" : fmt::format("{} have", fit.with_lost), Count(most, "device"));
}

}  // namespace

Waiting WaitingOf(const QueuedJob& job, ReasonCode code, size_t position) {
  return {.nodes = job.nodes,
          .ranks_per_node = job.ranks_per_node,
          .code = code,
          .position = position,
          .folder = job.folder,
          .resumes_with = job.resumes_with};
}

std::string ExplainWait(const Snapshot& cluster, const Waiting& job, JobId blocker) {
  const std::string position =
      job.position > 0 ? fmt::format("; position {} in the queue", job.position) : "";
  switch (job.code) {
    case ReasonCode::kNoNodes:
      return fmt::format("no node has joined yet; start imgagent on one{}", position);
    case ReasonCode::kNeverFits:
      return ExplainNeverFits(cluster, job) + position;
    case ReasonCode::kWaitsForDevices:
      return ExplainDevices(cluster, job) + position;
    case ReasonCode::kWaitsBehindJob:
      return fmt::format("waits behind {}, which comes first; {}{}", NameOfJob(cluster, blocker),
                         Needs(cluster, job, "free "), position);
    default:
      return fmt::format("waits for the scheduler{}", position);
  }
}

std::string ExplainNode(const NodeRecord& node) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(node.silence).count();
  if (node.state == NodeState::kLost) return "is lost: it was out of reach for too long";
  if (node.state == NodeState::kUnreachable) return fmt::format("is out of reach for {} s", seconds);
  if (!node.Connected()) return "is not connected";
  if (!node.stale.empty()) {
    return fmt::format("still ends job {} of generation {}", node.stale.begin()->job,
                       node.stale.begin()->generation);
  }
  return "";
}

}  // namespace imgd
