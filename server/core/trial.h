#pragma once

#include <vector>

#include "server/core/job.h"
#include "server/core/stall.h"
#include "server/core/types.h"

/// What a gang says of its nodes that broke before it trained: in the short all-reduce between its ranks, or
/// on the way to it. Pure.
namespace imgd {

/// The run ended before it trained, and it is tried again: by a broken collective, or since it stood still.
/// Not where another cause is believed, of which a broken collective is the consequence.
bool BrokeBeforeTraining(const JobRecord& job, const Verdict& verdict);

/// The nodes that the ranks on most other nodes got no answer from or waited for, by what their last pulses
/// say (step by step: which peers' kernels are silent, and who had begun fewer collectives than the others).
/// Of two nodes that only blame one another both, for nobody can tell them apart; of a larger gang none where
/// that is true of more than half. `nodes` has an entry for each of `run.parts`.
std::vector<NodeId> BlamedNodes(const Run& run, const std::vector<PartNode>& nodes, const GangPulses& pulses);

}  // namespace imgd
