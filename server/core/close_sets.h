#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace imgd {

/// Nodes that are close to each other, while a plan fills them: those of one label make a set, and sets are
/// known by the numbers of their labels. A node that is free for `free` ranks could take so many now.
class CloseSets {
 public:
  CloseSets() = default;
  /// So many sets, of nodes that could take `most_free` ranks at most.
  CloseSets(size_t sets, size_t most_free);

  /// Nodes come in the order in which equal ones are to be taken.
  void Add(uint32_t set, uint32_t node, uint32_t free);
  /// A node of the set was free for `from` ranks, and is for fewer now.
  void Move(uint32_t set, uint32_t from, uint32_t to);

  bool empty() const;
  /// How many nodes of the set could take so many ranks; 1 at least.
  uint32_t CountOf(uint32_t set, uint32_t ranks) const { return counts_[ranks][set]; }
  /// The set with the fewest nodes that could take so many ranks, of those with at least `nodes` of them.
  std::optional<uint32_t> Smallest(uint32_t ranks, uint32_t nodes) const;
  /// All sets, those with the most such nodes first.
  std::vector<uint32_t> LargestFirst(uint32_t ranks) const;

  /// Adds nodes of the set that could take so many ranks, the fullest first, until there are `most` or no
  /// more. `free_of(node)`: how many ranks it could take now. Cost: O(nodes that are passed).
  template <typename FreeOf>
  void Fill(uint32_t set, uint32_t ranks, size_t most, const FreeOf& free_of, std::vector<uint32_t>& chosen);

 private:
  struct Members {
    std::vector<uint32_t> nodes;
    size_t full = 0;  ///< so many of the first ones can take nothing any more
  };
  /// How many nodes to take of those that are free for so many ranks, by that number.
  std::vector<uint32_t> Shares(uint32_t set, uint32_t ranks, size_t wanted) const;

  std::vector<std::vector<uint32_t>> counts_;  ///< by ranks, then by set: nodes that could take so many
  std::vector<Members> members_;               ///< of each set
};

template <typename FreeOf>
void CloseSets::Fill(uint32_t set, uint32_t ranks, size_t most, const FreeOf& free_of,
                     std::vector<uint32_t>& chosen) {
  auto shares = Shares(set, ranks, most - chosen.size());
  Members& members = members_[set];
  while (members.full < members.nodes.size() && free_of(members.nodes[members.full]) == 0) ++members.full;
  size_t left = 0;
  for (const uint32_t share : shares) left += share;
  for (size_t i = members.full; left > 0 && i < members.nodes.size(); ++i) {
    const uint32_t free = free_of(members.nodes[i]);
    if (shares[free] == 0) continue;
    --shares[free];
    --left;
    chosen.push_back(members.nodes[i]);
  }
}

}  // namespace imgd
