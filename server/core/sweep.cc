#include "server/core/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace imgd {

double EpochFigures::Of(SweepMetric metric) const {
  switch (metric) {
    case SweepMetric::kTop1:
      return top1;
    case SweepMetric::kTop5:
      return top5;
    case SweepMetric::kLoss:
      return loss;
  }
  return 0;
}

uint32_t Halving::Kept(uint32_t members, size_t rung) const {
  uint32_t kept = members;
  for (size_t i = 0; i <= rung; ++i) kept /= factor;
  return std::max(kept, 1U);
}

namespace {

/// Whether a member is among those who go on after all rungs so far.
struct Standing {
  bool surely = true;
  bool maybe = true;
};

std::vector<std::pair<JobId, double>> BestFirst(const RungResults& results, bool max) {
  std::vector<std::pair<JobId, double>> best(results.begin(), results.end());
  // Stable, and by number before: of equals the earlier stays in front.
  std::stable_sort(best.begin(), best.end(), [max](const auto& a, const auto& b) {
    if (std::isnan(a.second) || std::isnan(b.second)) return !std::isnan(a.second);
    return max ? a.second > b.second : a.second < b.second;
  });
  return best;
}

}  // namespace

std::vector<Dropped> OutOf(const SweepRecord& sweep, const std::function<bool(JobId)>& may_come) {
  std::vector<Standing> standings(sweep.members);
  std::vector<Dropped> out;
  for (size_t rung = 0; rung < sweep.rungs.size(); ++rung) {
    const RungResults& results = sweep.rungs[rung];
    if (results.empty()) break;  // nobody has come so far
    const uint32_t kept = sweep.halving->Kept(sweep.members, rung);
    uint32_t surely_better = 0;
    uint32_t maybe_better = 0;  // with all those who may yet come
    for (uint32_t i = 0; i < sweep.members; ++i) {
      if (!standings[i].maybe || results.contains(sweep.Member(i))) continue;
      standings[i] = {.surely = false, .maybe = may_come(sweep.Member(i))};
      if (standings[i].maybe) ++maybe_better;
    }
    for (const auto& [job, value] : BestFirst(results, sweep.halving->max)) {
      Standing& own = standings[job.value() - sweep.id.value()];
      const Standing before = own;
      if (before.maybe && surely_better >= kept) {
        out.push_back({job, rung});
        own = {.surely = false, .maybe = false};
      } else {
        own.surely = before.surely && maybe_better < kept;
      }
      if (before.surely) ++surely_better;
      if (before.maybe) ++maybe_better;
    }
  }
  return out;
}

std::string_view NameOf(SweepMetric metric) {
  switch (metric) {
    case SweepMetric::kTop1:
      return "top1";
    case SweepMetric::kTop5:
      return "top5";
    case SweepMetric::kLoss:
      return "loss";
  }
  return "?";
}

std::string FigureText(SweepMetric metric, double value) {
  if (metric == SweepMetric::kLoss) return fmt::format("{:.4g}", value);
  return fmt::format("{:.1f} %", value * 100);
}

std::string SweepText(const SweepRecord& sweep) { return fmt::format("sweep {} ({})", sweep.id, sweep.name); }

std::string ExplainHalved(const SweepRecord& sweep, size_t rung, double value) {
  const Halving& halving = *sweep.halving;
  return fmt::format("stopped at epoch {}: {} {} is not among the best {} of the {} of {}",
                     halving.rungs[rung], NameOf(halving.metric), FigureText(halving.metric, value),
                     halving.Kept(sweep.members, rung), sweep.members, SweepText(sweep));
}

}  // namespace imgd
