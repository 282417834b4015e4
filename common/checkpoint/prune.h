#pragma once

#include <vector>

#include "common/checkpoint/summary.h"
#include "common/clock.h"
#include "common/ids.h"

namespace imgd {

/// How long checkpoints of jobs that have ended are kept, and how many.
struct PruneRule {
  Duration kept_for{};       ///< after the job's end; zero: for ever
  uint64_t total_bytes = 0;  ///< of all together; 0: without a limit
  bool best_stays = true;    ///< the best of each job, by its validation
  bool operator==(const PruneRule&) const = default;

  bool Empty() const { return kept_for == Duration::zero() && total_bytes == 0; }
};

/// What a job that has ended has left.
struct EndedCheckpoints {
  JobId job;
  WallTime ended;
  std::vector<CheckpointSummary> checkpoints;  ///< newest first, as SummarizeCheckpoints() has them
};

/// A checkpoint that is to go.
struct PrunedCheckpoint {
  JobId job;
  CheckpointSummary checkpoint;
  bool is_old = false;  ///< by `kept_for`; else there is too much
};

/// Which of the checkpoints are to go by the rule, in that order: what is too old, then, while there is too
/// much, those of the jobs that ended first, of each the oldest first. Never a pinned one. `other_bytes`: of
/// the checkpoints that may not go, and that count all the same. Pure.
std::vector<PrunedCheckpoint> PlanPrune(std::vector<EndedCheckpoints> ended, uint64_t other_bytes,
                                        const PruneRule& rule, WallTime now);

}  // namespace imgd
