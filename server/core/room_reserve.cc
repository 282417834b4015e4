#include <algorithm>
#include <utility>

#include "server/core/room.h"

/// What a gang that has to wait gets first, and when.
namespace imgd {

/// When holders end; many devices in a row have the same.
class Room::Ends {
 public:
  /// `ends` must outlive it.
  explicit Ends(const EndTimes& ends) : known_(ends) {}

  Instant Of(JobId holder) {
    if (holder == last_) return end_;
    const auto end = known_.find(holder);
    last_ = holder;
    return end_ = end == known_.end() ? Instant::max() : end->second;
  }

 private:
  const EndTimes& known_;
  JobId last_;
  Instant end_ = Instant::max();
};

/// A node that a gang could have a part of.
struct Room::Candidate {
  Instant ready;  ///< when enough of its devices are free
  uint32_t busy;  ///< of the devices that it needs there: how many are not free now
  uint32_t node;
};

/// Of a device that was taken or promised.
std::optional<Instant> Room::EndOfTaken(size_t device) const {
  const auto end = given_back_.find(device);
  return end == given_back_.end() ? std::nullopt : std::optional(end->second);
}

/// When each device of a node that does comes free, with its index, the first one first.
void Room::FindReleases(const View& view, uint32_t node, Ends& ends, std::vector<Release>& out) const {
  out.clear();
  const NodeSlots& slots = (*nodes_)[node];
  const Judged& judged = layout_->JudgedOf(*view.frame, node);
  const bool promised = promised_.Contains(node);
  Instant last = Instant::min();
  for (size_t i = 0; i < slots.devices.size(); ++i) {
    const size_t device = layout_->FirstOf(node) + i;
    const bool was_free = slots.holders[i] == JobId();
    Instant release = Instant::min();
    if (!free_.Contains(device)) {
      const auto end = was_free || promised ? EndOfTaken(device) : std::nullopt;
      release = end ? *end : was_free ? Instant::max() : ends.Of(slots.holders[i]);
    }
    last = std::max(last, release);
    if (judged.does.empty() || judged.does[i]) out.emplace_back(release, slots.devices[i]);
  }
  // None of a whole node is any good before the last one.
  if (view.whole_nodes) {
    for (auto& release : out) release.first = last;
  }
  // Mostly one job has all of them.
  if (!std::is_sorted(out.begin(), out.end())) std::sort(out.begin(), out.end());
}

/// As Choose() has it: those of the smallest set of close nodes that is enough, of the narrowest kind that
/// has one; all, where there is none.
void Room::KeepClose(std::vector<Candidate>& candidates, uint32_t nodes) {
  layout_->NumberLabels();
  for (size_t level = kTopology.size(); level-- > 0;) {
    CloseSets sets(layout_->LabelCount(level), 1);
    for (const auto& candidate : candidates) {
      const uint32_t set = layout_->LabelsOf(candidate.node)[level];
      if (set != Layout::kNoLabel) sets.Add(set, candidate.node, 1);
    }
    const auto smallest = sets.Smallest(1, nodes);
    if (!smallest) continue;
    std::erase_if(candidates,
                  [&](const auto& one) { return layout_->LabelsOf(one.node)[level] != *smallest; });
    return;
  }
}

/// What is free now stays so until the rest is, whatever comes free first. They stay in the order of nodes.
void Room::KeepLeastBusy(std::vector<Candidate>& candidates, size_t nodes) {
  if (candidates.size() <= nodes) return;
  const auto key = [](const Candidate& one) { return std::pair(one.busy, one.node); };
  std::vector<std::pair<uint32_t, uint32_t>> keys;
  keys.reserve(candidates.size());
  for (const auto& one : candidates) keys.push_back(key(one));
  const auto last = keys.begin() + static_cast<std::ptrdiff_t>(nodes - 1);
  std::nth_element(keys.begin(), last, keys.end());
  std::erase_if(candidates, [&](const Candidate& one) { return key(one) > *last; });
}

/// When so many of them are ready, which there are.
Instant Room::ReadyOf(const std::vector<Candidate>& candidates, size_t nodes) {
  std::vector<Instant> ready;
  ready.reserve(candidates.size());
  for (const auto& one : candidates) ready.push_back(one.ready);
  const auto last = ready.begin() + static_cast<std::ptrdiff_t>(nodes - 1);
  std::nth_element(ready.begin(), last, ready.end());
  return *last;
}

/// What a gang could have first.
struct Room::Choice {
  Instant start;
  std::vector<Candidate> nodes;

  /// Where all is free already it is nodes out of reach that it waits for.
  std::optional<Instant> from() const {
    if (start == Instant::max() || start == Instant::min()) return std::nullopt;
    return start;
  }
};

/// One job has all of the node's devices, and gives them back when it ends.
bool Room::HasOneHolder(uint32_t node) const {
  const auto& holders = (*nodes_)[node].holders;
  return holders.front() != JobId() && !promised_.Contains(node) &&
         std::equal(holders.begin() + 1, holders.end(), holders.begin());
}

/// So many devices of a node that has room for them: those that come free first.
std::vector<uint32_t> Room::FirstDevices(const View& view, uint32_t node, uint32_t count, Ends& ends,
                                         std::vector<Release>& releases) const {
  std::vector<uint32_t> devices;
  devices.reserve(count);
  const auto& all = (*nodes_)[node].devices;
  if (free_on_[node] != all.size() && !HasOneHolder(node)) {
    FindReleases(view, node, ends, releases);
    for (uint32_t i = 0; i < count; ++i) devices.push_back(releases[i].second);
    return devices;
  }
  const auto& does = layout_->JudgedOf(*view.frame, node).does;
  for (size_t i = 0; devices.size() < count; ++i) {
    if (does.empty() || does[i]) devices.push_back(all[i]);
  }
  return devices;
}

/// Of a node that has room for so many ranks.
auto Room::CandidateOn(const View& view, uint32_t node, uint32_t ranks, Ends& ends,
                       std::vector<Release>& releases) const -> Candidate {
  // Mostly nobody has any of them, or one job has all.
  const auto& holders = (*nodes_)[node].holders;
  if (free_on_[node] == holders.size()) return {Instant::min(), 0, node};
  if (HasOneHolder(node)) return {ends.Of(holders.front()), ranks, node};
  FindReleases(view, node, ends, releases);
  const auto busy = std::count_if(releases.begin(), releases.begin() + ranks,
                                  [](const auto& release) { return release.first != Instant::min(); });
  return {releases[ranks - 1].first, static_cast<uint32_t>(busy), node};
}

/// When the gang could start, and on which nodes; nothing where it never could.
auto Room::Earliest(const QueuedJob& job, const EndTimes& ends) -> std::optional<Choice> {
  std::optional<Choice> best;
  Ends known_ends(ends);
  std::vector<Release> releases;
  const QueuedJob anywhere = Anywhere(job);
  const View& view = ViewOf(anywhere);
  for (const Group& group : GroupsFor(anywhere)) {
    std::vector<Candidate> candidates;
    for (const uint32_t i : group.of->nodes) {
      const NodeSlots& node = (*nodes_)[i];
      // One that is only out of reach may come back in time.
      if (node.lost || job.KeepsOff(node)) continue;
      if (layout_->JudgedOf(*view.frame, i).room < job.ranks_per_node) continue;
      Candidate candidate = CandidateOn(view, i, job.ranks_per_node, known_ends, releases);
      // When one that is out of reach is back, nobody knows.
      if (!node.usable) candidate.ready = Instant::max();
      candidates.push_back(candidate);
    }
    if (candidates.size() < job.nodes) continue;
    const Instant start = ReadyOf(candidates, job.nodes);
    if (best && start >= best->start) continue;
    std::erase_if(candidates, [start](const Candidate& candidate) { return candidate.ready > start; });
    // Where nobody knows when it starts, all that counts is that fewer and fewer devices are waited for.
    if (job.nodes > 1 && start != Instant::max()) KeepClose(candidates, job.nodes);
    KeepLeastBusy(candidates, job.nodes);
    best = {start, std::move(candidates)};
  }
  return best;
}

Reservation Room::Reserve(const QueuedJob& job, const Choice& choice, const EndTimes& ends) {
  Ends known_ends(ends);
  std::vector<Release> releases;
  const View& view = ViewOf(Anywhere(job));
  Reservation reserved{.job = job.id};
  reserved.from = choice.from();
  for (const auto& candidate : choice.nodes) {
    auto devices = FirstDevices(view, candidate.node, job.ranks_per_node, known_ends, releases);
    const auto first_rank = static_cast<uint32_t>(reserved.parts.size()) * job.ranks_per_node;
    reserved.parts.push_back(PartOn(candidate.node, first_rank, std::move(devices), job.needs));
  }
  return reserved;
}

std::optional<Reservation> Room::Reserve(const QueuedJob& job, const EndTimes& ends) {
  const auto choice = Earliest(job, ends);
  return choice ? std::optional(Reserve(job, *choice, ends)) : std::nullopt;
}

std::optional<Reservation> Room::ReserveOnceTaken(const QueuedJob& job, const EndTimes& ends,
                                                  const Holders& holders, Instant asked) {
  const auto choice = Earliest(job, ends);
  if (!choice) return std::nullopt;
  const auto if_taken = choice->start > asked ? EndsIfTaken(job, ends, holders, asked) : std::nullopt;
  const auto sooner = if_taken ? Earliest(job, *if_taken) : std::nullopt;
  if (!sooner || !sooner->from() || sooner->start >= choice->start) return Reserve(job, *choice, ends);
  Reservation reserved = Reserve(job, *sooner, *if_taken);
  reserved.estimate = true;
  return reserved;
}

std::optional<Reservation> Room::ReserveByPreemption(const QueuedJob& job, EndTimes ends,
                                                     const Holders& holders, Instant asked) {
  if (WillHold(job)) return Reserve(job, ends);
  auto victims = ChooseVictims(job, holders);
  if (!victims) return ReserveOnceTaken(job, ends, holders, asked);
  for (const JobId victim : *victims) EndsBy(victim, asked + holders.at(victim).to_stop, ends);
  auto found = Reserve(job, ends);
  if (found) found->victims = std::move(*victims);
  return found;
}

}  // namespace imgd
