#pragma once

#include <string>

#include "server/core/actions.h"
#include "tests/sim/agent.h"

namespace imgd::sim {

/// "3/2": the second start of job 3.
std::string InWords(RunKey run);
std::string InWords(RunPhase phase);
std::string InWords(const TrainerEvent& event);
std::string InWords(const Action& action);

/// To which an action is sent; empty where it is not for a node.
NodeId NodeOf(const Action& action);

}  // namespace imgd::sim
