#include "server/core/room.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <tuple>

namespace imgd {
namespace {

/// Of a node that says nothing; such come last.
constexpr uint32_t kNoLabel = std::numeric_limits<uint32_t>::max();

/// How many of the elements of rank `least` and above.
template <typename Counts, typename CountOf>
uint64_t CountFrom(const Counts& counts, uint32_t least, const CountOf& count_of) {
  uint64_t sum = 0;
  for (size_t i = least; i < counts.size(); ++i) sum += count_of(counts[i]);
  return sum;
}

/// Nodes that could take so many ranks now.
uint64_t FreeNodes(const std::vector<std::set<uint32_t>>& by_free, uint32_t ranks) {
  return CountFrom(by_free, ranks, [](const auto& nodes) { return nodes.size(); });
}
uint64_t FreeNodes(const std::vector<uint32_t>& by_free, uint32_t ranks) {
  return CountFrom(by_free, ranks, [](uint32_t count) { return count; });
}

/// Adds nodes that could take so many ranks, the fullest first, until there are `most`.
void Fill(const std::vector<std::set<uint32_t>>& by_free, uint32_t ranks, size_t most,
          std::set<uint32_t>& chosen) {
  for (size_t free = ranks; free < by_free.size(); ++free) {
    for (auto node = by_free[free].begin(); node != by_free[free].end(); ++node) {
      if (chosen.size() == most) return;
      chosen.insert(*node);
    }
  }
}

/// When each device of a node that does comes free, with its index, the first one first.
std::vector<std::pair<Instant, uint32_t>> Releases(const NodeSlots& node, const Needs& needs,
                                                   const std::vector<uint32_t>& free,
                                                   const std::map<JobId, Instant>& ends) {
  std::vector<std::pair<Instant, uint32_t>> releases;
  Instant last = Instant::min();
  for (size_t i = 0; i < node.devices.size(); ++i) {
    const uint32_t device = node.devices[i];
    const auto end = ends.find(node.holders[i]);
    const Instant taken = end == ends.end() ? Instant::max() : end->second;
    const bool is_free = std::binary_search(free.begin(), free.end(), device);
    const Instant release = is_free ? Instant::min() : taken;
    last = std::max(last, release);
    if (node.DeviceDoes(needs, i)) releases.emplace_back(release, device);
  }
  // None of a whole node is any good before the last one.
  if (needs.whole_nodes) {
    for (auto& release : releases) release.first = last;
  }
  std::sort(releases.begin(), releases.end());
  return releases;
}

/// Asks node after node what it has for a gang; each kind of device is judged once.
class NodeCheck {
 public:
  /// `needs` must outlive it, like the nodes.
  explicit NodeCheck(const Needs& needs)
      : needs_(needs), any_(needs == Needs{.whole_nodes = needs.whole_nodes}) {}

  uint32_t RoomOn(const NodeSlots& node) {
    if (any_) return static_cast<uint32_t>(node.devices.size());
    if (!node.kind || !node.kind->uniform || node.kind->devices.empty()) return node.RoomFor(needs_);
    if (!Does(needs_, node.kind->labels)) return 0;
    const Device& device = node.kind->devices.front();
    const auto [known, is_new] = known_.try_emplace({device.model, device.memory_bytes}, false);
    if (is_new) known->second = Does(needs_, device);
    return known->second ? static_cast<uint32_t>(node.devices.size()) : 0;
  }

 private:
  const Needs& needs_;
  bool any_;
  std::map<std::pair<std::string_view, uint64_t>, bool> known_;  ///< by model and memory
};

/// A node that a gang could have a part of.
struct Candidate {
  Instant ready;  ///< when enough of its devices are free
  size_t busy;    ///< of the devices that it needs there: how many are not free now
  uint32_t node;
};

}  // namespace

std::vector<size_t> GroupsOf(const std::vector<NodeSlots>& nodes, const std::string& folder) {
  if (folder.empty()) return std::vector<size_t>(nodes.size(), 0);
  std::vector<FolderView> views;
  views.reserve(nodes.size());
  for (const auto& node : nodes) views.push_back(node.view);
  return FolderGroups(views, folder);
}

Room::Room(const std::vector<NodeSlots>& nodes) : nodes_(&nodes), free_(nodes.size()) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t device = 0; device < nodes[i].devices.size(); ++device) {
      if (nodes[i].holders[device] == JobId()) free_[i].push_back(nodes[i].devices[device]);
    }
    std::sort(free_[i].begin(), free_[i].end());
  }
}

std::vector<uint32_t> Room::FreeDevices(const View& view, uint32_t node) const {
  if (view.does[node] == Devices::kNone) return {};
  if (view.whole_nodes && free_[node].size() < (*nodes_)[node].devices.size()) return {};
  if (view.does[node] == Devices::kAll) return free_[node];
  std::vector<uint32_t> out;
  const auto& some = view.some.at(node);
  std::set_intersection(free_[node].begin(), free_[node].end(), some.begin(), some.end(),
                        std::back_inserter(out));
  return out;
}

uint32_t Room::FreeFor(const View& view, uint32_t node) const {
  if (view.does[node] == Devices::kAll && !view.whole_nodes) return static_cast<uint32_t>(free_[node].size());
  return static_cast<uint32_t>(FreeDevices(view, node).size());
}

Room::View& Room::ViewOf(const QueuedJob& job) {
  const auto known = views_.find(job);
  if (known != views_.end()) return known->second;
  View& view = views_[{job.folder, job.needs, job.avoid}];
  view.whole_nodes = job.needs.whole_nodes;
  view.group_of = GroupsOf(*nodes_, job.folder);
  view.does.resize(nodes_->size());
  NodeCheck check(job.needs);
  for (uint32_t i = 0; i < nodes_->size(); ++i) {
    const NodeSlots& node = (*nodes_)[i];
    Group& group = view.groups[view.group_of[i]];
    const uint32_t size = check.RoomOn(node);
    if (size == 0) continue;
    view.does[i] = size == node.devices.size() ? Devices::kAll : Devices::kSome;
    if (view.does[i] == Devices::kSome) {
      auto& some = view.some[i] = node.Suitable(job.needs, node.devices);
      std::sort(some.begin(), some.end());
    }
    group.members.push_back(i);
    if (group.by_size.size() <= size) group.by_size.resize(size + 1);
    ++group.by_size[size];
    const uint32_t free = node.usable && !job.avoid.contains(node.id) ? FreeFor(view, i) : 0;
    if (free == 0) continue;
    if (group.by_free.size() <= free) group.by_free.resize(free + 1);
    group.by_free[free].emplace_hint(group.by_free[free].end(), i);
  }
  return view;
}

void Room::NumberLabels() {
  if (!close_.empty()) return;
  close_.assign(nodes_->size(), {kNoLabel, kNoLabel, kNoLabel});
  static_assert(kTopology.size() == 3);
  for (size_t level = 0; level < kTopology.size(); ++level) {
    std::map<std::string, uint32_t> numbers;
    for (size_t i = 0; i < nodes_->size(); ++i) {
      const auto& kind = (*nodes_)[i].kind;
      if (!kind || kind->labels.empty()) continue;
      const auto label = kind->labels.find(kTopology[level]);
      if (label == kind->labels.end()) continue;
      close_[i][level] =
          numbers.try_emplace(label->second, static_cast<uint32_t>(numbers.size())).first->second;
    }
  }
}

void Room::SortByCloseness(Group& group) {
  if (group.close) return;
  NumberLabels();
  group.close.emplace();
  for (size_t level = 0; level < kTopology.size(); ++level) {
    auto& sets = (*group.close)[level];
    for (size_t free = 0; free < group.by_free.size(); ++free) {
      for (const uint32_t node : group.by_free[free]) {
        const uint32_t number = close_[node][level];
        if (number == kNoLabel) continue;
        auto& set = sets[number];
        set.by_free.resize(group.by_free.size());
        ++set.by_free[free];
        set.members.push_back(node);
      }
    }
  }
}

size_t Room::IndexOf(const NodeId& id) const {
  const auto node =
      std::lower_bound(nodes_->begin(), nodes_->end(), id,
                       [](const NodeSlots& slots, const NodeId& wanted) { return slots.id < wanted; });
  return node != nodes_->end() && node->id == id ? static_cast<size_t>(node - nodes_->begin())
                                                 : nodes_->size();
}

std::vector<Room::Group*> Room::GroupsFor(const QueuedJob& job) {
  View& view = ViewOf(job);
  if (!job.folder.empty() && job.resumes_with != NodeId()) {
    const size_t with = IndexOf(job.resumes_with);
    if (with < nodes_->size()) return {&view.groups.at(view.group_of[with])};
  }
  std::vector<Group*> groups;
  for (auto& [number, group] : view.groups) groups.push_back(&group);
  return groups;
}

bool Room::CouldEverHold(const QueuedJob& job) {
  const auto groups = GroupsFor(job);
  return std::any_of(groups.begin(), groups.end(), [&job](const Group* group) {
    return CountFrom(group->by_size, job.ranks_per_node, [](uint32_t count) { return count; }) >= job.nodes;
  });
}

bool Room::Holds(const QueuedJob& job) {
  const auto groups = GroupsFor(job);
  return std::any_of(groups.begin(), groups.end(), [&job](const Group* group) {
    return FreeNodes(group->by_free, job.ranks_per_node) >= job.nodes;
  });
}

uint32_t Room::MostNodes(const QueuedJob& job) {
  uint64_t most = 0;
  for (const Group* group : GroupsFor(job))
    most = std::max(most, FreeNodes(group->by_free, job.ranks_per_node));
  return static_cast<uint32_t>(most);
}

bool Room::WillHold(const QueuedJob& job) {
  const View& view = ViewOf(job);
  const auto groups = GroupsFor(job);
  return std::any_of(groups.begin(), groups.end(), [&](const Group* group) {
    const auto count = std::count_if(group->members.begin(), group->members.end(), [&](uint32_t i) {
      const NodeSlots& node = (*nodes_)[i];
      return !node.lost && !job.avoid.contains(node.id) && FreeFor(view, i) >= job.ranks_per_node;
    });
    return count >= static_cast<std::ptrdiff_t>(job.nodes);
  });
}

Part Room::PartOn(uint32_t node, uint32_t first_rank, std::vector<uint32_t> devices,
                  const Needs& needs) const {
  std::sort(devices.begin(), devices.end());
  return {.node = (*nodes_)[node].id,
          .first_rank = first_rank,
          .devices = std::move(devices),
          .whole = needs.whole_nodes};
}

/// The smallest set of close nodes that holds the gang, of the narrowest kind that has one; else as few sets
/// of the widest kind as there are, the largest first.
void Room::ChooseClose(Group& group, const QueuedJob& job, std::set<uint32_t>& chosen) {
  SortByCloseness(group);
  const uint32_t ranks = job.ranks_per_node;
  for (size_t level = kTopology.size(); level-- > 0;) {
    const CloseSet* best = nullptr;
    uint64_t least = std::numeric_limits<uint64_t>::max();
    for (const auto& [number, set] : (*group.close)[level]) {
      const uint64_t count = FreeNodes(set.by_free, ranks);
      if (count < job.nodes || count >= least) continue;
      best = &set;
      least = count;
    }
    // Where it is all there is, the order by free devices is known already.
    if (best != nullptr && least == FreeNodes(group.by_free, ranks)) return;
    if (best != nullptr) return FillFrom(*best, job, chosen);
  }
  const auto widest =
      std::find_if(group.close->begin(), group.close->end(), [](const auto& sets) { return !sets.empty(); });
  if (widest == group.close->end()) return;
  std::vector<const CloseSet*> sets;
  for (const auto& [number, set] : *widest) sets.push_back(&set);
  std::stable_sort(sets.begin(), sets.end(), [ranks](const CloseSet* a, const CloseSet* b) {
    return FreeNodes(a->by_free, ranks) > FreeNodes(b->by_free, ranks);
  });
  for (auto set = sets.begin(); set != sets.end() && chosen.size() < job.nodes; ++set)
    FillFrom(**set, job, chosen);
}

void Room::FillFrom(const CloseSet& set, const QueuedJob& job, std::set<uint32_t>& chosen) {
  const View& view = ViewOf(job);
  std::vector<std::pair<uint32_t, uint32_t>> fits;  // free devices, node
  for (const uint32_t node : set.members) {
    if (const uint32_t free = FreeFor(view, node); free >= job.ranks_per_node) fits.emplace_back(free, node);
  }
  std::sort(fits.begin(), fits.end());
  for (size_t i = 0; i < fits.size() && chosen.size() < job.nodes; ++i) chosen.insert(fits[i].second);
}

std::vector<uint32_t> Room::Choose(Group& group, const QueuedJob& job) {
  std::set<uint32_t> chosen;
  if (job.nodes > 1) ChooseClose(group, job, chosen);
  Fill(group.by_free, job.ranks_per_node, job.nodes, chosen);
  // Neighbours in rank are close, and else ranks go by node name, so that a gang's layout can be told by
  // looking at it.
  std::vector<uint32_t> nodes(chosen.begin(), chosen.end());
  if (!close_.empty()) {
    std::stable_sort(nodes.begin(), nodes.end(),
                     [this](uint32_t a, uint32_t b) { return close_[a] < close_[b]; });
  }
  return nodes;
}

std::optional<std::vector<Part>> Room::Find(const QueuedJob& job) {
  for (Group* group : GroupsFor(job)) {
    if (FreeNodes(group->by_free, job.ranks_per_node) < job.nodes) continue;
    const View& view = ViewOf(job);
    std::vector<Part> parts;
    for (const uint32_t node : Choose(*group, job)) {
      const auto first_rank = static_cast<uint32_t>(parts.size()) * job.ranks_per_node;
      auto devices = FreeDevices(view, node);
      devices.resize(job.ranks_per_node);
      parts.push_back(PartOn(node, first_rank, std::move(devices), job.needs));
    }
    return parts;
  }
  return std::nullopt;
}

void Room::Take(const std::vector<Part>& parts) {
  for (const auto& part : parts) {
    const auto node = static_cast<uint32_t>(IndexOf(part.node));
    std::vector<uint32_t> before;
    for (const auto& [key, view] : views_) before.push_back(FreeFor(view, node));
    std::erase_if(free_[node], [&part](uint32_t device) {
      return part.whole || std::find(part.devices.begin(), part.devices.end(), device) != part.devices.end();
    });
    size_t i = 0;
    for (auto& [key, view] : views_)
      Move(view.groups.at(view.group_of[node]), node, before[i++], FreeFor(view, node));
  }
}

void Room::Move(Group& group, uint32_t node, uint32_t from, uint32_t to) {
  // One that does not do, or can't be used, is nowhere.
  if (from == 0 || from >= group.by_free.size() || !group.by_free[from].contains(node)) return;
  group.by_free[from].erase(node);
  if (to > 0) group.by_free[to].insert(node);
  if (!group.close) return;
  for (size_t level = 0; level < kTopology.size(); ++level) {
    const uint32_t number = close_[node][level];
    if (number == kNoLabel) continue;
    auto& by_free = (*group.close)[level].at(number).by_free;
    --by_free[from];
    ++by_free[to];
  }
}

std::optional<Reservation> Room::Reserve(const QueuedJob& job, const std::map<JobId, Instant>& ends) {
  std::optional<Instant> best;
  std::vector<Candidate> chosen;
  NodeCheck check(job.needs);
  for (const Group* group : GroupsFor(job)) {
    std::vector<Candidate> candidates;
    for (const uint32_t i : group->members) {
      const NodeSlots& node = (*nodes_)[i];
      // One that is only out of reach may come back in time.
      if (node.lost || job.avoid.contains(node.id) || check.RoomOn(node) < job.ranks_per_node) continue;
      const auto releases = Releases(node, job.needs, free_[i], ends);
      // When one that is out of reach is back, nobody knows.
      const Instant ready = node.usable ? releases[job.ranks_per_node - 1].first : Instant::max();
      const auto busy = std::count_if(releases.begin(), releases.begin() + job.ranks_per_node,
                                      [](const auto& release) { return release.first != Instant::min(); });
      candidates.push_back({ready, static_cast<size_t>(busy), i});
    }
    if (candidates.size() < job.nodes) continue;
    const auto nth = candidates.begin() + job.nodes - 1;
    std::nth_element(candidates.begin(), nth, candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.ready < b.ready; });
    const Instant start = nth->ready;
    if (best && start >= *best) continue;
    best = start;
    std::erase_if(candidates, [start](const Candidate& candidate) { return candidate.ready > start; });
    // What is free now stays so until the rest is, whatever comes free first.
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return std::tie(a.busy, a.node) < std::tie(b.busy, b.node);
    });
    candidates.resize(job.nodes);
    chosen = std::move(candidates);
  }
  if (!best) return std::nullopt;
  std::sort(chosen.begin(), chosen.end(),
            [](const Candidate& a, const Candidate& b) { return a.node < b.node; });
  Reservation reserved{.job = job.id};
  // Where all is free already it is nodes out of reach that it waits for.
  if (*best != Instant::max() && *best != Instant::min()) reserved.from = *best;
  for (const auto& candidate : chosen) {
    const auto releases = Releases((*nodes_)[candidate.node], job.needs, free_[candidate.node], ends);
    std::vector<uint32_t> devices;
    for (uint32_t i = 0; i < job.ranks_per_node; ++i) devices.push_back(releases[i].second);
    const auto first_rank = static_cast<uint32_t>(reserved.parts.size()) * job.ranks_per_node;
    reserved.parts.push_back(PartOn(candidate.node, first_rank, std::move(devices), job.needs));
  }
  return reserved;
}

}  // namespace imgd
