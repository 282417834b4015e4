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

std::vector<JobId> OutOf(const RungResults& results, uint32_t kept, bool max) {
  std::vector<std::pair<JobId, double>> best(results.begin(), results.end());
  // Stable, and by number before: of equals the earlier stays in front.
  std::stable_sort(best.begin(), best.end(), [max](const auto& a, const auto& b) {
    if (std::isnan(a.second) || std::isnan(b.second)) return !std::isnan(a.second);
    return max ? a.second > b.second : a.second < b.second;
  });
  std::vector<JobId> out;
  for (size_t i = kept; i < best.size(); ++i) out.push_back(best[i].first);
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
