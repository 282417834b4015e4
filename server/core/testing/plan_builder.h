#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/core/scheduler.h"

/// For tests of plans: a snapshot in, decisions out.
namespace imgd {

inline constexpr Instant kNow(std::chrono::hours(1));

/// A cluster and a queue, built up in a line each.
class PlanBuilder {
 public:
  PlanBuilder& Node(const std::string& name, uint32_t devices, std::vector<uint64_t> holders = {}) {
    NodeSlots node{.id = NodeId(name), .usable = true};
    for (uint32_t i = 0; i < devices; ++i) node.devices.push_back(i);
    node.holders.resize(devices);
    for (size_t i = 0; i < holders.size(); ++i) node.holders[i] = JobId(holders[i]);
    cluster.nodes.push_back(std::move(node));
    return *this;
  }
  /// What the node named last is: the model of its devices, their memory in GiB, its labels.
  PlanBuilder& Is(const std::string& model, uint64_t memory_gib = 0, Labels labels = {}) {
    std::vector<Device> devices;
    for (const uint32_t i : cluster.nodes.back().devices)
      devices.push_back({.index = i, .model = model, .memory_bytes = memory_gib << 30});
    cluster.nodes.back().kind = KindOf(std::move(devices), std::move(labels));
    return *this;
  }
  PlanBuilder& Away(bool lost = false) {
    cluster.nodes.back().usable = false;
    cluster.nodes.back().lost = lost;
    cluster.nodes.back().why_not = lost ? "is lost" : "is out of reach for 10 s";
    return *this;
  }
  PlanBuilder& Queue(uint64_t id, uint32_t nodes, uint32_t ranks, int priority = 0) {
    queue.push_back({.priority = priority, .id = JobId(id), .nodes = nodes, .ranks_per_node = ranks});
    return *this;
  }
  /// The job queued last takes up to so many nodes.
  PlanBuilder& UpTo(uint32_t nodes) {
    queue.back().max_nodes = nodes;
    return *this;
  }
  /// What the job queued last asks for.
  PlanBuilder& Asks(Needs needs) {
    queue.back().needs = std::move(needs);
    return *this;
  }
  /// The job queued last waits for its retry.
  PlanBuilder& Retries(bool keeps_place = true) {
    queue.back().not_before = kNow + std::chrono::seconds(1);
    queue.back().keeps_place = keeps_place;
    queue.back().code = ReasonCode::kBackoff;
    return *this;
  }
  /// The job queued last has had devices reserved.
  PlanBuilder& Promised() {
    queue.back().promised = true;
    return *this;
  }
  /// The job queued last holds its devices no longer than this.
  PlanBuilder& For(Duration most) {
    queue.back().most = most;
    return *this;
  }
  /// The job that holds devices has this priority, and so many minutes of work in no checkpoint.
  PlanBuilder& Holds(uint64_t holder, int priority, int minutes_at_risk = 0) {
    cluster.holders[JobId(holder)] = {.priority = priority,
                                      .preemptible = true,
                                      .to_stop = std::chrono::minutes(2),
                                      .at_risk = std::chrono::minutes(minutes_at_risk)};
    return *this;
  }
  PlanBuilder& Ends(uint64_t holder, Duration in) {
    cluster.ends[JobId(holder)] = kNow + in;
    return *this;
  }
  Plan Make() const { return MakePlan(cluster, queue); }

  Snapshot cluster{.now = kNow};
  std::vector<QueuedJob> queue;
};

/// What a node sees that shares no folders.
inline std::shared_ptr<const FolderView> Sees(const std::string& filesystem) {
  return std::make_shared<const FolderView>(FolderView{filesystem, {}});
}

inline std::vector<std::string> Where(const Placement& placement) {
  std::vector<std::string> out;
  for (const auto& part : placement.parts) {
    out.push_back(fmt::format("{}:{}@{}", part.node, fmt::join(part.devices, ","), part.first_rank));
  }
  return out;
}

inline std::vector<std::pair<uint64_t, ReasonCode>> Waits(const Plan& plan) {
  std::vector<std::pair<uint64_t, ReasonCode>> out;
  for (const auto& wait : plan.waits) out.emplace_back(wait.job.value(), wait.code);
  return out;
}

}  // namespace imgd
