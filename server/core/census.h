#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "server/core/cluster_state.h"
#include "server/core/types.h"

namespace imgd {

/// How well an agent is reached: its node's state, but for one of a ready node that is not connected.
enum class AgentState : uint8_t { kReady, kDisconnected, kUnreachable, kLost };
inline constexpr std::array kAgentStates = {AgentState::kReady, AgentState::kDisconnected,
                                            AgentState::kUnreachable, AgentState::kLost};
AgentState AgentStateOf(const NodeRecord& node);

/// Devices by what they are used for; each is in one of these.
struct DeviceUse {
  uint32_t allocated = 0;    ///< a job holds it, of this cluster or another
  uint32_t idle = 0;         ///< a job may get it now
  uint32_t set_aside = 0;    ///< held by none, on a node that somebody or imgd set aside
  uint32_t unavailable = 0;  ///< held by none, on a node that is away, sick or being taken back

  uint32_t Total() const { return allocated + idle + set_aside + unavailable; }
};

/// The cluster counted, at one moment.
struct Census {
  std::map<JobState, uint32_t> jobs;  ///< that have not ended; each such state is there
  uint32_t held_back = 0;             ///< of the queued: that would not start if there was room
  std::map<AgentState, uint32_t> agents;
  uint32_t set_aside_by_user = 0;  ///< nodes
  uint32_t set_aside_by_imgd = 0;
  uint32_t noticed = 0;                      ///< nodes that are being taken back
  std::map<ProblemKind, uint32_t> problems;  ///< nodes with such a problem; each kind is there
  DeviceUse gpus;
  DeviceUse cpu_slots;
};

/// Pure. Cost: O(jobs + devices).
Census TakeCensus(const ClusterState& cluster);

}  // namespace imgd
