#include "server/core/kept.h"

#include <algorithm>
#include <set>
#include <utility>

namespace imgd {

size_t Kept::Before(const QueuedJob& job) const {
  const Reservations& reserved = *cluster_.reserved;
  const auto after =
      std::find_if(reserved.begin(), reserved.end(),
                   [key = job.Key()](const Reservation& one) { return !one.place.Before(key); });
  return static_cast<size_t>(after - reserved.begin());
}

const Reservation* Kept::From(const QueuedJob& job) {
  const Reservation* first = nullptr;
  NodesCheck check(job.needs);
  const size_t before = Before(job);
  for (size_t i = 0; i < before; ++i) {
    for (const auto& [node, free] : ExamplesOf(i)) {
      if (job.IsTooLarge(*node) || check.RoomFor(*node) < job.ranks_per_node) continue;
      const Reservation& one = (*cluster_.reserved)[i];
      if (free) return &one;
      if (first == nullptr) first = &one;
    }
  }
  return first;
}

auto Kept::ExamplesOf(size_t reserved) -> const std::vector<Example>& {
  auto& examples = examples_[reserved];
  if (examples) return *examples;
  examples.emplace();
  std::set<std::pair<NodeSort, bool>> known;
  // A large gang's parts are mostly on nodes next to each other.
  const NodeSlots* const end = cluster_.nodes.data() + cluster_.nodes.size();
  const NodeSlots* node = end;
  for (const auto& part : (*cluster_.reserved)[reserved].parts) {
    const bool is_next = node != nullptr && node != end && ++node != end && node->id == part.node;
    if (!is_next) node = cluster_.NodeOf(part.node);
    if (node == nullptr) continue;
    const bool free = node->Free() > 0;
    if (known.emplace(node->Sort(), free).second) examples->push_back({node, free});
  }
  return *examples;
}

}  // namespace imgd
