#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/core/types.h"

/// Whether a gang still goes on, judged by what its nodes say of where its ranks are. Pure.
namespace imgd {

/// A pulse, and when it came.
struct HeardPulse {
  RankPulse pulse;
  Instant at;
};
using GangPulses = std::map<uint32_t, HeardPulse>;  ///< by rank

/// What is known of the node of one part of a gang.
struct PartNode {
  bool out_of_reach = false;
  std::string address;
};

/// Why a gang can't go on.
struct Stall {
  Trouble trouble;
  std::optional<NodeId> lost;  ///< the node that the others wait for, which is out of reach
};

/// Finds what keeps a gang from going on. `nodes` has an entry for each of `run.parts`.
///
/// A rank whose process gives no sign of life for its limit is stopped; one that is dumping core has ten
/// minutes for it, and the gang with it. Else the gang stands still for as long as all its ranks do; the one
/// that has begun the fewest collectives is the one that the others wait for, and what it does says how long
/// that may take. So a rank that writes a checkpoint, or validates, holds up the others within its own limit,
/// however short theirs is. Ranks that are not heard of though their node is there (an agent that restarts)
/// leave it open; so does a node out of reach, unless its kernel does not answer another rank either: that
/// one is lost, whatever it was at, once the others have waited for as long as what they do may take.
std::optional<Stall> FindStall(const Run& run, const std::vector<PartNode>& nodes, const GangPulses& pulses,
                               Instant now);

/// "step 12, forward pass (collective 34)".
std::string WhereOf(const RankPulse& pulse);

}  // namespace imgd
