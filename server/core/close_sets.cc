#include "server/core/close_sets.h"

#include <algorithm>
#include <numeric>

namespace imgd {

CloseSets::CloseSets(size_t sets, size_t most_free)
    : counts_(most_free + 1, std::vector<uint32_t>(sets)), members_(sets) {}

void CloseSets::Add(uint32_t set, uint32_t node, uint32_t free) {
  members_[set].nodes.push_back(node);
  for (uint32_t ranks = 1; ranks <= free; ++ranks) ++counts_[ranks][set];
}

void CloseSets::Move(uint32_t set, uint32_t from, uint32_t to) {
  for (uint32_t ranks = from; ranks > to; --ranks) --counts_[ranks][set];
}

bool CloseSets::empty() const {
  return std::all_of(members_.begin(), members_.end(), [](const Members& one) { return one.nodes.empty(); });
}

std::optional<uint32_t> CloseSets::Smallest(uint32_t ranks, uint32_t nodes) const {
  const auto& counts = counts_[ranks];
  std::optional<uint32_t> best;
  for (uint32_t set = 0; set < counts.size(); ++set) {
    if (counts[set] == nodes) return set;
    if (counts[set] > nodes && (!best || counts[set] < counts[*best])) best = set;
  }
  return best;
}

std::vector<uint32_t> CloseSets::LargestFirst(uint32_t ranks) const {
  const auto& counts = counts_[ranks];
  std::vector<uint32_t> sets(counts.size());
  std::iota(sets.begin(), sets.end(), 0);
  std::stable_sort(sets.begin(), sets.end(),
                   [&counts](uint32_t a, uint32_t b) { return counts[a] > counts[b]; });
  return sets;
}

std::vector<uint32_t> CloseSets::Shares(uint32_t set, uint32_t ranks, size_t wanted) const {
  std::vector<uint32_t> shares(counts_.size());
  for (size_t free = ranks; free < counts_.size() && wanted > 0; ++free) {
    const uint32_t more = free + 1 < counts_.size() ? counts_[free + 1][set] : 0;
    shares[free] = static_cast<uint32_t>(std::min<size_t>(wanted, counts_[free][set] - more));
    wanted -= shares[free];
  }
  return shares;
}

}  // namespace imgd
