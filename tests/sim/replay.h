#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/sim/swf.h"

namespace imgd::sim {

/// A cluster of equal nodes.
struct Machine {
  uint32_t nodes = 0;
  uint32_t devices = 0;  ///< on each
};

/// A job as it went.
struct Outcome {
  const SwfJob* job = nullptr;
  uint32_t nodes = 1;
  uint32_t devices = 1;  ///< on each
  double start_s = -1;
  std::optional<double> promised_s;  ///< when it was to start by the first reservation that it had
  std::optional<double> forecast_s;  ///< when, as one was told who asked right after it was submitted
};

/// One way of scheduling the trace.
struct Replay {
  std::string policy;
  std::vector<Outcome> outcomes;
};

/// What running jobs say of themselves.
enum class Told {
  kNothing,   ///< nobody knows more than what they asked for
  kProgress,  ///< when they will have ended, as a trainer does by its speed; here it is always right
};
/// The real core, with agents that obey at once and never fail.
Replay ReplayOurs(const std::vector<SwfJob>& jobs, Machine machine, Told told = Told::kNothing);
/// First come, first served: who does not fit holds up all others.
Replay ReplayFifo(const std::vector<SwfJob>& jobs, Machine machine);
/// EASY as in the textbook (Lifka 1995; Mu'alem and Feitelson 2001): the first that waits has a reservation,
/// at the moment when enough running jobs have ended if all take as long as they asked for; others may start
/// when they do not put that off.
Replay ReplayEasy(const std::vector<SwfJob>& jobs, Machine machine);

/// Jobs that the machine could hold, with the time that they may run: the trace's, else for ever.
std::vector<SwfJob> JobsFor(const SwfTrace& trace, Machine machine);
/// A gang of as few nodes as hold so many devices; whole nodes where it takes more than one.
Outcome GangOf(const SwfJob& job, Machine machine);

/// The tables that people read: what was got out of the machine, and what came of what was predicted.
std::string TableOf(const std::vector<Replay>& replays, Machine machine);

}  // namespace imgd::sim
