#include "trainer/loop/rank_spread.h"

#include <algorithm>

namespace imgd::trainer {

report::RankSpread SpreadOf(std::span<const RankTimes> ranks) {
  if (ranks.size() < 2) return {};
  const auto [fastest, slowest] = std::ranges::minmax_element(ranks, {}, &RankTimes::own);
  const auto [least, most] = std::ranges::minmax_element(ranks, {}, &RankTimes::wait);
  report::RankSpread out{.ranks = static_cast<int>(ranks.size()),
                         .own_least = fastest->own,
                         .own_most = slowest->own,
                         .wait_least = least->wait,
                         .wait_most = most->wait,
                         .slowest_rank = static_cast<int>(slowest - ranks.begin()),
                         .slowest_input = slowest->input};
  for (const auto& rank : ranks) {
    out.own_mean += rank.own / static_cast<double>(ranks.size());
    out.wait_mean += rank.wait / static_cast<double>(ranks.size());
  }
  return out;
}

}  // namespace imgd::trainer
