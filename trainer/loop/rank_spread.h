#pragma once

#include <span>

#include "trainer/report/reporter.h"

namespace imgd::trainer {

/// A rank's mean step, in seconds.
struct RankTimes {
  double own = 0;    ///< work of its own: input, forward, backward, optimiser
  double wait = 0;   ///< for other ranks
  double input = 0;  ///< of its own, waiting for input
};

/// How the ranks differ; `ranks` is by rank. Nothing with one.
report::RankSpread SpreadOf(std::span<const RankTimes> ranks);

}  // namespace imgd::trainer
