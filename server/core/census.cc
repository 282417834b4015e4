#include "server/core/census.h"

namespace imgd {
namespace {

void CountDevice(const NodeRecord& node, size_t i, DeviceUse& use) {
  const bool held = node.holders[i] != JobId() || node.ForeignHolder(node.devices[i].index).has_value();
  if (held) {
    ++use.allocated;
  } else if (node.set_aside) {
    ++use.set_aside;
  } else if (node.Usable()) {
    ++use.idle;
  } else {
    ++use.unavailable;
  }
}

void CountNode(const NodeRecord& node, Census& census) {
  ++census.agents[AgentStateOf(node)];
  if (node.set_aside)
    ++(node.set_aside->by == AsideBy::kUser ? census.set_aside_by_user : census.set_aside_by_imgd);
  if (node.notice) ++census.noticed;
  for (const auto& [kind, text] : node.problems) ++census.problems[kind];
  for (size_t i = 0; i < node.devices.size(); ++i)
    CountDevice(node, i, node.devices[i].IsGpu() ? census.gpus : census.cpu_slots);
}

}  // namespace

AgentState AgentStateOf(const NodeRecord& node) {
  if (node.state == NodeState::kLost) return AgentState::kLost;
  if (node.state == NodeState::kUnreachable) return AgentState::kUnreachable;
  return node.Connected() ? AgentState::kReady : AgentState::kDisconnected;
}

Census TakeCensus(const ClusterState& cluster) {
  Census census;
  for (const auto state :
       {JobState::kQueued, JobState::kStarting, JobState::kRunning, JobState::kPreempting, JobState::kPaused})
    census.jobs[state] = 0;
  for (const auto state : kAgentStates) census.agents[state] = 0;
  for (const auto kind : {ProblemKind::kDisk, ProblemKind::kMemory, ProblemKind::kClock, ProblemKind::kGpu,
                          ProblemKind::kSharedFolder})
    census.problems[kind] = 0;
  for (const auto& [id, job] : cluster.jobs()) {
    if (!IsFinal(job.state)) ++census.jobs[job.state];
  }
  census.held_back = census.jobs[JobState::kQueued] - static_cast<uint32_t>(cluster.queue().size());
  for (const auto& [id, node] : cluster.nodes()) CountNode(node, census);
  return census;
}

}  // namespace imgd
