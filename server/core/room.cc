#include "server/core/room.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

namespace imgd {
namespace {

/// How many of the elements of rank `least` and above.
template <typename Counts, typename CountOf>
uint64_t CountFrom(const Counts& counts, uint32_t least, const CountOf& count_of) {
  uint64_t sum = 0;
  for (size_t i = least; i < counts.size(); ++i) sum += count_of(counts[i]);
  return sum;
}

/// Nodes that could take so many ranks now.
uint64_t FreeNodes(const std::vector<BitSet>& by_free, uint32_t ranks) {
  return CountFrom(by_free, ranks, [](const auto& nodes) { return nodes.size(); });
}

/// Nodes with so many devices that do, and no more than `most` in all.
uint64_t SmallNodes(const Layout::Members::Counts& counts, uint32_t ranks, uint32_t most) {
  uint64_t sum = 0;
  for (const auto& [devices, nodes] : counts) {
    const auto& [does, all] = devices;
    if (does >= ranks && all <= most) sum += nodes;
  }
  return sum;
}

/// Adds those of the members that could take so many ranks, the fullest first, until there are `most`. Some
/// of them may be chosen already.
void Fill(const std::vector<BitSet>& by_free, const std::vector<uint32_t>& members, uint32_t ranks,
          size_t most, std::vector<uint32_t>& chosen) {
  std::sort(chosen.begin(), chosen.end());
  const std::vector<uint32_t> before = chosen;
  for (size_t free = ranks; free < by_free.size(); ++free) {
    const bool more = by_free[free].ForEach([&](uint32_t place) {
      if (chosen.size() == most) return false;
      if (!std::binary_search(before.begin(), before.end(), members[place])) chosen.push_back(members[place]);
      return true;
    });
    if (!more) return;
  }
}

}  // namespace

QueuedJob Anywhere(const QueuedJob& job) {
  QueuedJob anywhere = job;
  anywhere.avoid.clear();
  anywhere.most_devices = QueuedJob::kAnySize;
  return anywhere;
}

Room::Room(const std::vector<NodeSlots>& nodes) : Room(nodes, std::make_shared<Layout>(nodes)) {}

Room::Room(const std::vector<NodeSlots>& nodes, std::shared_ptr<Layout> layout)
    : nodes_(&nodes), layout_(std::move(layout)) {
  free_on_.reserve(nodes.size());
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    const NodeSlots& node = nodes[i];
    uint32_t& free = free_on_.emplace_back();
    for (size_t device = 0; device < node.devices.size(); ++device) {
      if (node.holders[device] != JobId()) continue;
      free_.Insert(layout_->FirstOf(i) + device);
      ++free;
    }
  }
}

std::vector<uint32_t> Room::FreeDevices(uint32_t node) const {
  std::vector<uint32_t> out;
  const auto& devices = (*nodes_)[node].devices;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (free_.Contains(layout_->FirstOf(node) + i)) out.push_back(devices[i]);
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<uint32_t> Room::FreeDevices(const View& view, uint32_t node) const {
  if (FreeFor(view, node, free_on_[node]) == 0) return {};
  const Judged& judged = layout_->JudgedOf(*view.frame, node);
  if (judged.room == 0) return {};
  if (judged.does.empty()) return FreeDevices(node);
  std::vector<uint32_t> out;
  for (size_t i = 0; i < judged.does.size(); ++i) {
    if (judged.does[i] && free_.Contains(layout_->FirstOf(node) + i))
      out.push_back((*nodes_)[node].devices[i]);
  }
  std::sort(out.begin(), out.end());
  return out;
}

uint32_t Room::FreeFor(const View& view, uint32_t node, uint32_t free) const {
  const Judged& judged = layout_->JudgedOf(*view.frame, node);
  if (judged.room == 0) return 0;
  const size_t first = layout_->FirstOf(node);
  if (view.whole_nodes && free < layout_->DevicesOf(node)) return 0;
  if (judged.does.empty()) return free;
  uint32_t does = 0;
  for (size_t i = 0; i < judged.does.size(); ++i) does += judged.does[i] && free_.Contains(first + i) ? 1 : 0;
  return does;
}

size_t Room::ViewNumbers::Find(const QueuedJob& job, Layout& layout) {
  ViewKey key(layout.GroupsFor(job.folder).place(), job.needs, job.most_devices, job.avoid);
  return known.try_emplace(std::move(key), known.size()).first->second;
}

size_t Room::ViewNumbers::Of(const QueuedJob& job, Layout& layout) {
  if (last_asked && last_asked->Is(job)) return last;
  last_asked.emplace(job);
  if (!job.avoid.empty()) return last = Find(job, layout);
  const auto at = by_place.find({job.needs.place(), job.folder, job.most_devices});
  if (at != by_place.end()) return last = at->second;
  const auto& [needs, folder] = kept.emplace_back(job.needs, job.folder);
  return last = by_place[{needs.place(), folder, job.most_devices}] = Find(job, layout);
}

Room::View& Room::ViewOf(const QueuedJob& job) {
  const size_t number = numbers_->Of(job, *layout_);
  if (views_.size() <= number) views_.resize(number + 1);
  if (!views_[number]) {
    View& view = views_[number].emplace(View{.whole_nodes = job.needs->whole_nodes,
                                             .frame = &layout_->FrameFor(job.folder, job.needs),
                                             .groups = {}});
    SortByFree(view, job);
  }
  return *views_[number];
}

void Room::SortByFree(View& view, const QueuedJob& job) const {
  for (const Members& members : view.frame->groups) {
    Group& group = view.groups.emplace_back();
    group.of = &members;
    group.by_free.resize(members.by_size.size());
    for (uint32_t place = 0; place < members.nodes.size(); ++place) {
      const uint32_t node = members.nodes[place];
      if (free_on_[node] == 0) continue;  // most, where a cluster is full
      if (!(*nodes_)[node].usable) continue;
      if (job.IsChoosy() && job.KeepsOff((*nodes_)[node])) continue;
      if (const uint32_t free = FreeFor(view, node, free_on_[node]); free > 0)
        group.by_free[free].Insert(place);
    }
  }
}

void Room::SortByCloseness(Group& group) {
  if (group.close) return;
  layout_->NumberLabels();
  group.close.emplace();
  // Of each member, by its place: in the order of names, as nodes come.
  const auto& members = group.of->nodes;
  std::vector<uint32_t> free_of(members.size());
  for (uint32_t free = 0; free < group.by_free.size(); ++free) {
    group.by_free[free].ForEach([&](uint32_t place) { return (free_of[place] = free, true); });
  }
  for (size_t level = 0; level < kTopology.size(); ++level) {
    CloseSets& sets = (*group.close)[level];
    sets = CloseSets(layout_->LabelCount(level), group.by_free.size() - 1);
    for (uint32_t place = 0; place < members.size(); ++place) {
      const uint32_t set = layout_->LabelsOf(members[place])[level];
      if (set != Layout::kNoLabel && free_of[place] > 0) sets.Add(set, members[place], free_of[place]);
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

std::span<Room::Group> Room::GroupsFor(const QueuedJob& job) {
  View& view = ViewOf(job);
  if (!job.folder.empty() && job.resumes_with != NodeId()) {
    const size_t with = IndexOf(job.resumes_with);
    if (with < nodes_->size()) return {&view.groups[view.frame->group_of[with]], 1};
  }
  return view.groups;
}

Fit Room::FitOf(const QueuedJob& job) {
  Fit best;
  for (const Group& group : GroupsFor(job)) {
    const auto free = static_cast<uint32_t>(FreeNodes(group.by_free, job.ranks_per_node));
    const auto all = static_cast<uint32_t>(CountFrom(group.of->by_size, job.ranks_per_node, std::identity()));
    best.free_now = std::max(best.free_now, free);
    best.with_lost = std::max(best.with_lost, all);
  }
  return best;
}

bool Room::CouldEverHold(const QueuedJob& job) {
  if (job.IsChoosy()) return CouldEverHold(Anywhere(job));
  const auto groups = GroupsFor(job);
  return std::any_of(groups.begin(), groups.end(), [&job](const Group& group) {
    return CountFrom(group.of->by_size, job.ranks_per_node, [](uint32_t count) { return count; }) >=
           job.nodes;
  });
}

bool Room::CouldHoldOnSmall(const QueuedJob& job, uint32_t most, bool with_lost) {
  if (job.IsChoosy()) return CouldHoldOnSmall(Anywhere(job), most, with_lost);
  const auto groups = GroupsFor(job);
  return std::any_of(groups.begin(), groups.end(), [&](const Group& group) {
    const uint64_t sound = SmallNodes(group.of->sound, job.ranks_per_node, most);
    const uint64_t lost = with_lost ? SmallNodes(group.of->lost, job.ranks_per_node, most) : 0;
    return sound + lost >= job.nodes;
  });
}

bool Room::Holds(const QueuedJob& job) {
  if (job.IsChoosy() && !Holds(Anywhere(job))) return false;
  const auto groups = GroupsFor(job);
  return std::any_of(groups.begin(), groups.end(), [&job](const Group& group) {
    return FreeNodes(group.by_free, job.ranks_per_node) >= job.nodes;
  });
}

bool Room::HoldsWithout(const QueuedJob& job, const std::set<NodeId>& nodes) {
  const auto groups = GroupsFor(job);
  const View& view = ViewOf(job);
  return std::any_of(groups.begin(), groups.end(), [&](const Group& group) {
    const auto is_free_in_it = [&](const NodeId& id) {
      const size_t index = IndexOf(id);
      if (index == nodes_->size()) return false;
      const auto node = static_cast<uint32_t>(index);
      const uint32_t free = FreeFor(view, node, free_on_[node]);
      // One that can't be used is nowhere.
      return free >= job.ranks_per_node && &group == &view.groups[view.frame->group_of[node]] &&
             group.by_free[free].Contains(view.frame->place_of[node]);
    };
    const auto without = static_cast<uint64_t>(std::count_if(nodes.begin(), nodes.end(), is_free_in_it));
    return FreeNodes(group.by_free, job.ranks_per_node) >= job.nodes + without;
  });
}

uint32_t Room::MostNodes(const QueuedJob& job) {
  uint64_t most = 0;
  if (job.IsChoosy()) {
    const uint32_t anywhere = MostNodes(Anywhere(job));
    if (anywhere < job.nodes) return anywhere;
  }
  for (const Group& group : GroupsFor(job))
    most = std::max<uint64_t>(most, FreeNodes(group.by_free, job.ranks_per_node));
  return static_cast<uint32_t>(most);
}

bool Room::WillHold(const QueuedJob& job) {
  const QueuedJob anywhere = Anywhere(job);
  const View& view = ViewOf(anywhere);
  const auto groups = GroupsFor(anywhere);
  return std::any_of(groups.begin(), groups.end(), [&](const Group& group) {
    const auto& members = group.of->nodes;
    const auto count = std::count_if(members.begin(), members.end(), [&](uint32_t i) {
      const NodeSlots& node = (*nodes_)[i];
      return !node.lost && !job.KeepsOff(node) && FreeFor(view, i, free_on_[i]) >= job.ranks_per_node;
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
void Room::ChooseClose(Group& group, const QueuedJob& job, std::vector<uint32_t>& chosen) {
  SortByCloseness(group);
  const uint32_t ranks = job.ranks_per_node;
  const View& view = ViewOf(job);
  const auto fill_from = [&](CloseSets& sets, uint32_t set) {
    sets.Fill(
        set, ranks, job.nodes, [&](uint32_t node) { return FreeFor(view, node, free_on_[node]); }, chosen);
  };
  for (size_t level = kTopology.size(); level-- > 0;) {
    CloseSets& sets = (*group.close)[level];
    const auto smallest = sets.Smallest(ranks, job.nodes);
    if (!smallest) continue;
    // Where it is all there is, the order by free devices is known already.
    if (sets.CountOf(*smallest, ranks) < FreeNodes(group.by_free, ranks)) fill_from(sets, *smallest);
    return;
  }
  const auto widest = std::find_if(group.close->begin(), group.close->end(),
                                   [](const CloseSets& sets) { return !sets.empty(); });
  if (widest == group.close->end()) return;
  for (const uint32_t set : widest->LargestFirst(ranks)) {
    if (chosen.size() == job.nodes) return;
    fill_from(*widest, set);
  }
}

std::vector<uint32_t> Room::Choose(Group& group, const QueuedJob& job) {
  std::vector<uint32_t> chosen;
  chosen.reserve(job.nodes);
  if (job.nodes > 1) ChooseClose(group, job, chosen);
  Fill(group.by_free, group.of->nodes, job.ranks_per_node, job.nodes, chosen);
  // Neighbours in rank are close, and else ranks go by node name, so that a gang's layout can be told by
  // looking at it.
  if (!layout_->has_numbers()) {
    std::sort(chosen.begin(), chosen.end());
  } else {
    std::sort(chosen.begin(), chosen.end(), [this](uint32_t a, uint32_t b) {
      return std::tie(layout_->LabelsOf(a), a) < std::tie(layout_->LabelsOf(b), b);
    });
  }
  return chosen;
}

std::optional<std::vector<Part>> Room::Find(const QueuedJob& job) {
  if (job.IsChoosy()) {
    auto parts = Find(Anywhere(job));
    const auto kept_off = [&](const Part& part) { return job.KeepsOff((*nodes_)[IndexOf(part.node)]); };
    if (!parts || std::none_of(parts->begin(), parts->end(), kept_off)) return parts;
  }
  for (Group& group : GroupsFor(job)) {
    if (FreeNodes(group.by_free, job.ranks_per_node) < job.nodes) continue;
    const View& view = ViewOf(job);
    std::vector<Part> parts;
    parts.reserve(job.nodes);
    for (const uint32_t node : Choose(group, job)) {
      const auto first_rank = static_cast<uint32_t>(parts.size()) * job.ranks_per_node;
      auto devices = FreeDevices(view, node);
      devices.resize(job.ranks_per_node);
      parts.push_back(PartOn(node, first_rank, std::move(devices), job.needs));
    }
    return parts;
  }
  return std::nullopt;
}

std::vector<uint32_t> Room::NodesOf(const std::vector<Part>& parts) const {
  std::vector<uint32_t> out;
  out.reserve(parts.size());
  // A large gang's parts are by name, too, and mostly on nodes next to each other.
  size_t next = 0;
  for (const auto& part : parts) {
    const bool is_next = next < nodes_->size() && (*nodes_)[next].id == part.node;
    const size_t index = is_next ? next : IndexOf(part.node);
    out.push_back(static_cast<uint32_t>(index));
    next = index + 1;
  }
  return out;
}

void Room::Take(const std::vector<Part>& parts, Instant until) { Take(parts, NodesOf(parts), until); }

void Room::Take(const std::vector<Part>& parts, const std::vector<uint32_t>& nodes, Instant until) {
  std::vector<uint32_t> before(views_.size());
  for (size_t at = 0; at < parts.size(); ++at) {
    const Part& part = parts[at];
    const uint32_t node = nodes[at];
    const uint32_t had = free_on_[node];
    for (size_t i = 0; i < views_.size(); ++i) before[i] = views_[i] ? FreeFor(*views_[i], node, had) : 0;
    const auto& devices = (*nodes_)[node].devices;
    for (size_t i = 0; i < devices.size(); ++i) {
      const size_t device = layout_->FirstOf(node) + i;
      if (!part.Takes(devices[i]) || !free_.Contains(device)) continue;
      free_.Erase(device);
      --free_on_[node];
      if (until != Instant::max()) given_back_[device] = until;
    }
    const uint32_t has = free_on_[node];
    for (size_t i = 0; i < views_.size(); ++i) {
      if (before[i] > 0) Move(*views_[i], node, before[i], FreeFor(*views_[i], node, has));
    }
  }
}

void Room::Promise(const std::vector<Part>& parts, const std::vector<uint32_t>& nodes, Instant until) {
  Take(parts, nodes, until);
  for (size_t at = 0; at < parts.size(); ++at) {
    const auto& devices = (*nodes_)[nodes[at]].devices;
    for (size_t i = 0; i < devices.size(); ++i) {
      if (parts[at].Takes(devices[i])) given_back_[layout_->FirstOf(nodes[at]) + i] = until;
    }
    promised_.Insert(nodes[at]);
  }
}

void Room::Move(View& view, uint32_t node, uint32_t from, uint32_t to) {
  Group& group = view.groups[view.frame->group_of[node]];
  const uint32_t place = view.frame->place_of[node];
  // One that can't be used is nowhere.
  if (!group.by_free[from].Contains(place)) return;
  group.by_free[from].Erase(place);
  if (to > 0) group.by_free[to].Insert(place);
  if (!group.close) return;
  for (size_t level = 0; level < kTopology.size(); ++level) {
    const uint32_t number = layout_->LabelsOf(node)[level];
    if (number == Layout::kNoLabel) continue;
    (*group.close)[level].Move(number, from, to);
  }
}

}  // namespace imgd
