#include "server/core/growth.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "server/core/cluster_state.h"
#include "server/core/explain.h"
#include "server/core/job.h"
#include "server/core/needs.h"
#include "server/core/room.h"

namespace imgd {
namespace {

using Place = std::array<std::string, kTopology.size()>;

/// The labels that say where the node is, from the widest to the narrowest; empty where it has none.
Place PlaceOf(const NodeSlots& node) {
  Place place;
  for (size_t level = 0; node.kind && level < place.size(); ++level) {
    const auto label = node.kind->labels.find(kTopology[level]);
    if (label != node.kind->labels.end()) place[level] = label->second;
  }
  return place;
}

/// How many of the labels they share.
uint32_t Closeness(const Place& a, const Place& b) {
  uint32_t shared = 0;
  for (size_t level = 0; level < a.size(); ++level)
    shared += !a[level].empty() && a[level] == b[level] ? 1 : 0;
  return shared;
}

/// Devices of a node that count for who has some there.
uint32_t Charged(const NodeSlots& node, const QueuedJob& job) {
  return job.needs->whole_nodes ? static_cast<uint32_t>(node.devices.size()) : job.ranks_per_node;
}

bool IsAmong(const std::vector<Part>& parts, const NodeId& node) {
  return std::any_of(parts.begin(), parts.end(), [&node](const Part& part) { return part.node == node; });
}

/// Those of `before` whose nodes are not in `after`.
std::vector<Part> Without(const std::vector<Part>& before, const std::vector<Part>& after) {
  std::vector<Part> gone;
  for (const auto& part : before) {
    if (!IsAmong(after, part.node)) gone.push_back(part);
  }
  return gone;
}

std::vector<std::string> NodeNames(const std::vector<Part>& parts) {
  std::vector<std::string> names;
  for (const auto& part : parts) names.push_back(part.node.name());
  return names;
}

Part MorePart(const NodeSlots& node, const QueuedJob& job) {
  std::vector<uint32_t> free;
  for (size_t i = 0; i < node.devices.size(); ++i) {
    if (node.holders[i] == JobId()) free.push_back(node.devices[i]);
  }
  std::vector<uint32_t> devices = node.Suitable(job.needs, free);
  std::sort(devices.begin(), devices.end());
  devices.resize(job.ranks_per_node);
  return {.node = node.id, .devices = std::move(devices), .whole = job.needs->whole_nodes};
}

/// By ranks on each node, the fewest nodes that a gang of so many needs.
using Gangs = std::map<uint32_t, uint32_t>;

void NoteFewest(Gangs& gangs, uint32_t ranks, uint32_t nodes) {
  const auto [known, is_new] = gangs.try_emplace(ranks, nodes);
  if (!is_new) known->second = std::min(known->second, nodes);
}

struct LessByValue {
  bool operator()(const Needs* a, const Needs* b) const { return a != b && *a < *b; }
};

/// Of those who wait and could start some time, by what they ask.
std::map<const Needs*, Gangs, LessByValue> FewestNodes(const std::vector<QueuedJob>& waiting,
                                                       const std::vector<QueuedJob>& coming) {
  std::map<const Needs*, Gangs> by_place;  // quick to look up, but those that are coming have one each
  for (const auto* jobs : {&waiting, &coming}) {
    for (const auto& job : *jobs) {
      if (job.code != ReasonCode::kNeverFits && job.code != ReasonCode::kQuota)
        NoteFewest(by_place[job.needs.place()], job.ranks_per_node, job.nodes);
    }
  }
  std::map<const Needs*, Gangs, LessByValue> fewest;
  for (const auto& [needs, gangs] : by_place) {
    for (const auto& [ranks, nodes] : gangs) NoteFewest(fewest[needs], ranks, nodes);
  }
  return fewest;
}

std::string NodesText(size_t count) { return fmt::format("{} node{}", count, count == 1 ? "" : "s"); }

/// "node gpu-2 is free", "gpu-3 and gpu-4 are free", "gpu-3, gpu-4, gpu-5 and 4 more are free".
std::string NodesAre(std::vector<std::string> names, std::string_view are) {
  if (names.size() == 1) return fmt::format("node {} is {}", names.front(), are);
  constexpr size_t kNamed = 3;
  std::string last = names.back();
  if (names.size() > kNamed + 1) last = fmt::format("{} more", names.size() - kNamed);
  names.resize(std::min(names.size() - 1, kNamed));
  return fmt::format("{} and {} are {}", fmt::join(names, ", "), last, are);
}

/// Why it has fewer nodes than its last start: for whom it left, or what is the matter with `left`, those
/// that it had and has no more, or that its quotas leave it too little for any of them.
std::string WhyFewer(const JobRecord& job, const std::vector<Part>& left, const ClusterState& state,
                     const std::optional<QuotaLeft>& quota_left) {
  const StopFor stop = job.run.stop;
  std::vector<std::string> lost;
  std::vector<std::string> unfit;
  std::vector<std::string> avoided;
  for (const auto& part : left) {
    const NodeRecord* node = state.FindNode(part.node);
    const std::string why = node == nullptr ? "is not there any more" : ExplainNode(*node);
    if (part.lost) lost.push_back(part.node.name());
    if (!why.empty()) unfit.push_back(fmt::format("node {} {}", part.node, why));
    if (job.avoid.contains(part.node)) avoided.push_back(part.node.name());
  }
  if (!lost.empty()) return NodesAre(std::move(lost), "lost");
  if (stop == StopFor::kPreempt || stop == StopFor::kMove) return job.run.stop_text;
  if (unfit.size() > 1) unfit.front() += fmt::format("; {} more can't be used either", unfit.size() - 1);
  if (!unfit.empty()) return unfit.front();
  if (!avoided.empty()) return NodesAre(std::move(avoided), "avoided after failures");
  const auto is_within_quota = [&](const Part& part) {
    const NodeRecord* node = part.whole ? state.FindNode(part.node) : nullptr;
    return (node != nullptr ? node->devices.size() : part.devices.size()) <= quota_left->devices;
  };
  if (!quota_left || std::any_of(left.begin(), left.end(), is_within_quota)) return "no more are free";
  return fmt::format("{}'s quota leaves it no more devices", quota_left->account);
}

}  // namespace

/// A node that a gang could have besides its own.
struct Growth::Extra {
  uint32_t closeness = 0;
  uint32_t free = 0;
  size_t index = 0;
  bool operator<(const Extra& other) const {
    if (closeness != other.closeness) return closeness > other.closeness;
    return std::tie(free, index) < std::tie(other.free, other.index);
  }
};

Growth::Growth(Snapshot& cluster, std::shared_ptr<Layout> layout, const std::vector<QueuedJob>& waiting,
               const std::vector<QueuedJob>& coming)
    : cluster_(cluster), layout_(std::move(layout)) {
  FindOpen(waiting, coming);
  for (const auto* jobs : {&waiting, &coming}) {
    for (const auto& job : *jobs) {
      if (claimed_.size() == cluster_.allowances.size()) return;
      Claim(job);
    }
  }
}

void Growth::Claim(const QueuedJob& waiting) {
  if (waiting.code == ReasonCode::kNeverFits) return;
  const auto allows = [&](const std::string& account) {
    const auto known = cluster_.allowances.find(account);
    return known == cluster_.allowances.end() ||
           known->second.CouldHave(waiting.nodes * waiting.ranks_per_node);
  };
  if (!std::all_of(waiting.accounts->begin(), waiting.accounts->end(), allows)) return;
  for (const auto& account : *waiting.accounts) {
    if (cluster_.allowances.contains(account)) claimed_.try_emplace(account, NameOfJob(cluster_, waiting));
  }
}

/// Nodes that nobody who waits could use are open, of those that something is free on. One for whom all nodes
/// that are not lost are too few is nobody: lost ones may never return.
void Growth::FindOpen(const std::vector<QueuedJob>& waiting, const std::vector<QueuedJob>& coming) {
  const auto& nodes = cluster_.nodes;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].usable && nodes[i].Free() > 0) open_.push_back(i);
  }
  if (open_.empty()) return;
  struct Sort {
    uint32_t not_lost = 0;  ///< nodes
    uint32_t room = 0;      ///< of each, for those who are looked at
    bool claimed = false;
  };
  const NodeSorts& known = layout_->sorts();
  std::vector<Sort> sorts(known.examples.size());
  for (size_t i = 0; i < nodes.size(); ++i) sorts[known.of[i]].not_lost += nodes[i].lost ? 0 : 1;
  for (const auto& [needs, gangs] : FewestNodes(waiting, coming)) {
    const auto judged = layout_->Judge(*needs);
    std::map<uint32_t, uint64_t> by_room;
    for (size_t i = 0; i < sorts.size(); ++i) {
      sorts[i].room = (*judged)[i].room;
      by_room[sorts[i].room] += sorts[i].not_lost;
    }
    const auto least = std::find_if(gangs.begin(), gangs.end(), [&by_room](const auto& gang) {
      uint64_t enough = 0;
      for (auto room = by_room.lower_bound(gang.first); room != by_room.end(); ++room) enough += room->second;
      return enough >= gang.second;
    });
    if (least == gangs.end()) continue;
    for (Sort& sort : sorts) sort.claimed = sort.claimed || sort.room >= least->first;
  }
  std::erase_if(open_, [&](size_t i) { return sorts[known.of[i]].claimed; });
}

/// How many devices more it may have.
uint32_t Growth::LeftOfQuotas(const QueuedJob& job) const {
  uint32_t left = std::numeric_limits<uint32_t>::max();
  for (const auto& account : *job.accounts) {
    const auto allowance = cluster_.allowances.find(account);
    if (allowance == cluster_.allowances.end()) continue;
    const auto& [devices, used, used_up] = allowance->second;
    if (used_up) return 0;
    if (devices == 0) continue;
    left = claimed_.contains(account) || used >= devices ? 0 : std::min(left, devices - used);
  }
  return left;
}

std::string Growth::WhyNoMoreByQuota(const QueuedJob& job) const {
  for (const auto& account : *job.accounts) {
    const auto allowance = cluster_.allowances.find(account);
    if (allowance == cluster_.allowances.end()) continue;
    if (allowance->second.used_up) return fmt::format("{}'s budget is used up", account);
    if (const auto claim = claimed_.find(account); allowance->second.devices > 0 && claim != claimed_.end())
      return fmt::format("what {}'s quota leaves is for {}, which waits", account, claim->second);
  }
  return fmt::format("{}'s quota leaves it no more devices", fmt::join(*job.accounts, " or "));
}

std::vector<Growth::Extra> Growth::ExtrasFor(const QueuedJob& job, const std::vector<Part>& parts) {
  const Layout::Groups& groups = *layout_->GroupsFor(job.folder);
  const NodeSlots& first = *cluster_.NodeOf(parts.front().node);
  const size_t group = groups[static_cast<size_t>(&first - cluster_.nodes.data())];
  const Place place = PlaceOf(first);
  NodesCheck check(job.needs);
  std::vector<Extra> extras;
  for (const size_t i : open_) {
    const NodeSlots& node = cluster_.nodes[i];
    if (groups[i] != group || job.avoid.contains(node.id) || IsAmong(parts, node.id)) continue;
    const uint32_t free = check.FreeFor(node);
    if (free >= job.ranks_per_node) extras.push_back({Closeness(place, PlaceOf(node)), free, i});
  }
  std::sort(extras.begin(), extras.end());
  return extras;
}

/// Neighbours in rank are close, and else in the order of their names, as Room has it.
void Growth::NumberRanks(std::vector<Part>& parts) const {
  std::map<NodeId, Place> places;
  for (const auto& part : parts) places[part.node] = PlaceOf(*cluster_.NodeOf(part.node));
  std::sort(parts.begin(), parts.end(), [&places](const Part& a, const Part& b) {
    return std::tie(places.at(a.node), a.node) < std::tie(places.at(b.node), b.node);
  });
  uint32_t rank = 0;
  for (auto& part : parts)
    part.first_rank = std::exchange(rank, rank + static_cast<uint32_t>(part.devices.size()));
}

std::optional<std::vector<Part>> Growth::Find(const QueuedJob& job, const std::vector<Part>& parts) {
  if (open_.empty()) return std::nullopt;
  uint32_t left = LeftOfQuotas(job);
  if (left < job.ranks_per_node) return std::nullopt;
  std::vector<Part> gang;
  for (const auto& part : parts) {
    const NodeSlots* node = cluster_.NodeOf(part.node);
    if (node == nullptr || !node->usable) return std::nullopt;
    gang.push_back({.node = part.node, .devices = part.devices, .whole = part.whole});
  }
  for (const auto& extra : ExtrasFor(job, parts)) {
    if (gang.size() >= job.max_nodes) break;
    const NodeSlots& node = cluster_.nodes[extra.index];
    const uint32_t devices = Charged(node, job);
    if (devices > left) continue;
    left -= devices;
    gang.push_back(MorePart(node, job));
  }
  if (gang.size() == parts.size()) return std::nullopt;
  NumberRanks(gang);
  return gang;
}

std::string Growth::WhyNot(const QueuedJob& job, const std::vector<Part>& parts) {
  const uint32_t allowed = LeftOfQuotas(job);
  if (allowed < job.ranks_per_node) return WhyNoMoreByQuota(job);
  bool has_free = false;
  std::vector<std::string> left;
  QueuedJob where_it_is = job;
  where_it_is.resumes_with = parts.front().node;
  const auto nodes = NodesInReach(cluster_, *layout_, where_it_is);
  for (const NodeSlots* node : nodes) {
    if (!node->usable || node->FreeFor(job.needs) < job.ranks_per_node) continue;
    if (job.avoid.contains(node->id)) {
      left.push_back(node->id.name());
    } else if (!IsAmong(parts, node->id)) {
      has_free = true;
    }
  }
  const auto extras = has_free ? ExtrasFor(job, parts) : std::vector<Extra>();
  const auto within_quota = [&](const Extra& extra) {
    return Charged(cluster_.nodes[extra.index], job) <= allowed;
  };
  if (std::any_of(extras.begin(), extras.end(), within_quota))
    return "one of its own nodes takes nothing new";
  if (!extras.empty()) return WhyNoMoreByQuota(job);
  if (has_free && open_.empty()) return "what is free is for jobs that wait";
  std::vector<std::string> texts = {fmt::format(
      "no other node{} has {} free {}{}{}{}",
      job.folder.empty() ? "" : fmt::format(" that shares {}", job.folder), job.ranks_per_node,
      NounFor(job.needs, job.ranks_per_node != 1), LabelsFor(job.needs),
      has_free ? " that nobody waits for" : "",
      left.empty() ? "" : fmt::format(", but for {}, which it was moved off", fmt::join(left, ", ")))};
  for (auto& why : ExplainUnusable(nodes, job)) texts.push_back(std::move(why));
  return fmt::format("{}", fmt::join(texts, "; "));
}

void Growth::Take(const QueuedJob& job, const std::vector<Part>& before, const std::vector<Part>& gang) {
  for (const auto& part : gang) {
    NodeSlots& node = *cluster_.NodeOf(part.node);
    node.Take(job.id, part);
    if (IsAmong(before, part.node)) continue;
    for (const auto& account : *job.accounts) {
      const auto allowance = cluster_.allowances.find(account);
      if (allowance != cluster_.allowances.end())
        allowance->second.used +=
            static_cast<uint32_t>(part.whole ? node.devices.size() : part.devices.size());
    }
  }
}

std::string ExplainSize(const JobRecord& job, const Snapshot& cluster,
                        const std::vector<QueuedJob>& waiting) {
  if (!job.IsElastic() || job.state != JobState::kRunning || job.NodesNow() >= job.max_nodes) return "";
  // It may have started since.
  const auto is_there = [&cluster](const Part& part) { return cluster.NodeOf(part.node) != nullptr; };
  if (!std::all_of(job.run.parts.begin(), job.run.parts.end(), is_there)) return "";
  const auto why = [&]() -> std::string {
    if (!job.Trains()) return "a program is not ended to go on with more";
    if (job.run.stop == StopFor::kGrow) return "it is about to go on with more";
    if (job.run.stop != StopFor::kNothing) return "it is to end";
    const Duration interval = std::chrono::milliseconds(job.resize_interval_ms);
    const auto left = TimeLeft(job, cluster.now);
    if (left && *left < interval) return "its time limit is too near for more to be worth it";
    const Duration wait = job.run.held_since + interval - cluster.now;
    if (wait > Duration::zero()) return fmt::format("it may grow in {} (resize_interval)", TimeText(wait));
    QueuedJob entry = EntryOf(job);
    entry.avoid = job.run.avoided;
    Snapshot own = cluster;
    Growth growth(own, waiting, {});
    return growth.Find(entry, job.run.parts) ? "more have just come free, and it soon goes on with them"
                                             : growth.WhyNot(entry, job.run.parts);
  };
  return fmt::format("has {} of at most {} nodes: {}", job.NodesNow(), job.max_nodes, why());
}

std::string ExplainGrowth(const std::vector<Part>& before, const std::vector<Part>& after) {
  const auto left = Without(before, after);
  return fmt::format(
      "{} instead of {}: {}{}", NodesText(after.size()), before.size(),
      NodesAre(NodeNames(Without(after, before)), "free"),
      left.empty() ? "" : fmt::format("; without {}, which can't be used", fmt::join(NodeNames(left), ", ")));
}

std::string ExplainResize(const JobRecord& job, const std::vector<Part>& after, const ClusterState& state,
                          const std::optional<QuotaLeft>& quota_left) {
  const auto& before = job.run.parts;
  if (before.empty() || before.size() == after.size()) return "";
  if (after.size() > before.size()) return fmt::format("goes on with {}", ExplainGrowth(before, after));
  return fmt::format("goes on with {} instead of {}: {}", NodesText(after.size()), before.size(),
                     WhyFewer(job, Without(before, after), state, quota_left));
}

}  // namespace imgd
