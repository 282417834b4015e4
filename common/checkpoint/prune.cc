#include "common/checkpoint/prune.h"

#include <algorithm>
#include <ranges>
#include <tuple>

namespace imgd {

std::vector<PrunedCheckpoint> PlanPrune(std::vector<EndedCheckpoints> ended, uint64_t other_bytes,
                                        const PruneRule& rule, WallTime now) {
  std::ranges::sort(ended, {}, [](const EndedCheckpoints& job) { return std::tuple(job.ended, job.job); });
  uint64_t all = other_bytes;
  for (const auto& job : ended) {
    for (const auto& checkpoint : job.checkpoints) all += checkpoint.size_bytes;
  }
  const int64_t kept_us = std::chrono::duration_cast<std::chrono::microseconds>(rule.kept_for).count();
  std::vector<PrunedCheckpoint> out;
  for (const bool for_age : {true, false}) {
    for (const auto& job : ended) {
      const bool is_old = kept_us > 0 && job.ended.micros < now.micros - kept_us;
      if (is_old != for_age) continue;
      for (const auto& checkpoint : job.checkpoints | std::views::reverse) {
        const bool too_much = rule.total_bytes > 0 && all > rule.total_bytes;
        if (!is_old && !too_much) break;
        if (checkpoint.pinned || (rule.best_stays && checkpoint.best)) continue;
        out.push_back({job.job, checkpoint, is_old});
        all -= checkpoint.size_bytes;
      }
    }
  }
  return out;
}

}  // namespace imgd
