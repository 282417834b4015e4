#include "server/core/scheduler.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "server/core/needs.h"
#include "server/core/room.h"

namespace imgd {
namespace {

/// A plan in the making.
class Planner {
 public:
  /// `cluster` must outlive it.
  explicit Planner(const Snapshot& cluster)
      : cluster_(cluster), room_(cluster.nodes), allowances_(cluster.allowances) {}
  void Consider(const QueuedJob& job);
  Plan plan;

 private:
  bool OverQuota(const QueuedJob& job, uint32_t devices) const;
  void Count(const QueuedJob& job, uint32_t devices);
  void KeepForLater(const QueuedJob& job);
  uint32_t MostOnEach(const QueuedJob& job, bool left) const;
  uint32_t NodesFor(const QueuedJob& job, uint32_t most) const;
  std::optional<QueuedJob> WithinQuota(const QueuedJob& job) const;
  uint32_t DevicesOf(const std::vector<Part>& parts) const;
  void Take(const QueuedJob& job, const std::vector<Part>& parts);
  std::optional<std::vector<Part>> Place(const QueuedJob& job);
  std::optional<std::vector<Part>> FindIn(Room& room, const QueuedJob& job);
  ReasonCode WhyNot(const QueuedJob& job);
  void Reserve(const QueuedJob& job);
  bool IsHeldByGuess(const Part& part) const;
  const NodeSlots& NodeOf(const Part& part) const;

  const Snapshot& cluster_;
  Room room_;
  std::map<std::string, Allowance> allowances_;
  std::optional<Room> beside_;  ///< without what is reserved; with plan.reserved
};

void Planner::Consider(const QueuedJob& job) {
  const bool retries_later = job.not_before > cluster_.now;
  if (retries_later && job.code != ReasonCode::kBackoff) {
    plan.waits.push_back({job.id, ReasonCode::kBackoff});
  }
  if (retries_later && !job.keeps_place) return;
  const auto over_quota = [&] {
    KeepForLater(job);
    if (!retries_later && job.code != ReasonCode::kQuota) plan.waits.push_back({job.id, ReasonCode::kQuota});
  };
  if (OverQuota(job, job.nodes * job.ranks_per_node)) return over_quota();
  const std::optional<QueuedJob> within = WithinQuota(job);
  const QueuedJob& wanted = within ? *within : job;
  if (auto parts = Place(wanted)) {
    if (OverQuota(job, DevicesOf(*parts))) return over_quota();
    Take(job, *parts);
    (retries_later ? plan.kept : plan.starts).push_back({job.id, std::move(*parts)});
    return;
  }
  const bool lacks_it = within && ((room_.Holds(job) && !room_.Holds(*within)) ||
                                   NodesFor(job, MostOnEach(job, true)) < job.nodes);
  if (lacks_it) return over_quota();
  const ReasonCode code = WhyNot(wanted);
  if (code == ReasonCode::kWaitsForDevices && !plan.reserved) Reserve(wanted);
  if (!retries_later && job.code != code) plan.waits.push_back({job.id, code});
}

/// The most devices that each node of a gang may have that has them for itself, so that the gang stays within
/// its quotas: `left` of them, or all.
uint32_t Planner::MostOnEach(const QueuedJob& job, bool left) const {
  uint32_t most = std::numeric_limits<uint32_t>::max();
  for (const auto& account : job.accounts) {
    const auto known = allowances_.find(account);
    if (known == allowances_.end() || known->second.devices == 0) continue;
    const auto& [devices, used, used_up] = known->second;
    most = std::min(most, (left ? devices - std::min(used, devices) : devices) / job.nodes);
  }
  return most;
}

/// Of those that do for the job, the nodes that have no more devices; not lost ones, which may never return.
uint32_t Planner::NodesFor(const QueuedJob& job, uint32_t most) const {
  const auto& nodes = cluster_.nodes;
  return static_cast<uint32_t>(std::count_if(nodes.begin(), nodes.end(), [&](const NodeSlots& node) {
    return !node.lost && node.devices.size() <= most && node.RoomFor(job.needs) >= job.ranks_per_node;
  }));
}

/// The same job, kept off nodes that would take it above its quotas; nothing where there are none. Else such
/// nodes would be reserved and others preempted for it, over and over, and it never start.
std::optional<QueuedJob> Planner::WithinQuota(const QueuedJob& job) const {
  if (!job.needs.whole_nodes || allowances_.empty()) return std::nullopt;
  const uint32_t most = MostOnEach(job, true);
  std::optional<QueuedJob> within;
  for (const auto& node : cluster_.nodes) {
    if (node.devices.size() <= most) continue;
    if (!within) within = job;
    within->avoid.insert(node.id);
  }
  return within;
}

bool Planner::OverQuota(const QueuedJob& job, uint32_t devices) const {
  if (allowances_.empty()) return false;
  return std::any_of(job.accounts.begin(), job.accounts.end(), [&](const std::string& account) {
    const auto allowance = allowances_.find(account);
    return allowance != allowances_.end() && !allowance->second.Has(devices);
  });
}

void Planner::Count(const QueuedJob& job, uint32_t devices) {
  for (const auto& account : job.accounts) {
    const auto allowance = allowances_.find(account);
    if (allowance != allowances_.end()) allowance->second.used += devices;
  }
}

/// What its accounts have left is for this job: their later, smaller ones would keep it waiting for ever. Not
/// where one of them may start nothing at all: that can last for weeks.
void Planner::KeepForLater(const QueuedJob& job) {
  const uint32_t devices = job.nodes * job.ranks_per_node;
  if (job.needs.whole_nodes && NodesFor(job, MostOnEach(job, false)) < job.nodes) return;
  const bool fits = std::all_of(job.accounts.begin(), job.accounts.end(), [&](const std::string& account) {
    const auto allowance = allowances_.find(account);
    return allowance == allowances_.end() || allowance->second.CouldHave(devices);
  });
  if (fits) Count(job, devices);
}

const NodeSlots& Planner::NodeOf(const Part& part) const {
  return *std::lower_bound(cluster_.nodes.begin(), cluster_.nodes.end(), part.node,
                           [](const NodeSlots& slots, const NodeId& wanted) { return slots.id < wanted; });
}

/// Of some of its devices only the holder itself says when it ends.
bool Planner::IsHeldByGuess(const Part& part) const {
  const NodeSlots& node = NodeOf(part);
  for (size_t i = 0; i < node.devices.size(); ++i) {
    const bool wanted = part.whole || std::find(part.devices.begin(), part.devices.end(), node.devices[i]) !=
                                          part.devices.end();
    if (wanted && cluster_.estimated.contains(node.holders[i])) return true;
  }
  return false;
}

/// With those of whole nodes that no rank has.
uint32_t Planner::DevicesOf(const std::vector<Part>& parts) const {
  size_t devices = 0;
  for (const auto& part : parts) {
    devices += part.devices.size();
    if (!part.whole) continue;
    devices += NodeOf(part).devices.size() - part.devices.size();
  }
  return static_cast<uint32_t>(devices);
}

void Planner::Take(const QueuedJob& job, const std::vector<Part>& parts) {
  Count(job, DevicesOf(parts));
  const auto nodes = room_.NodesOf(parts);
  room_.Take(parts, nodes);
  if (beside_) beside_->Take(parts, nodes);
}

/// As many nodes as there are, of those that it takes, and as the quotas allow; at least those that it needs.
std::optional<std::vector<Part>> Planner::FindIn(Room& room, const QueuedJob& job) {
  if (job.max_nodes <= job.nodes) return room.Find(job);
  QueuedJob sized = job;
  sized.nodes = std::min(room.MostNodes(job), job.max_nodes);
  for (; sized.nodes > job.nodes; --sized.nodes) {
    if (OverQuota(job, sized.nodes * job.ranks_per_node)) continue;
    auto parts = room.Find(sized);
    if (parts && !OverQuota(job, DevicesOf(*parts))) return parts;
  }
  return room.Find(job);
}

/// On devices that are not reserved; or on any, where the job is over before those are needed.
std::optional<std::vector<Part>> Planner::Place(const QueuedJob& job) {
  auto parts = FindIn(beside_ ? *beside_ : room_, job);
  if (!parts && beside_ && plan.reserved->from && job.most > Duration::zero() &&
      std::max(cluster_.now, job.not_before) + job.most <= *plan.reserved->from) {
    parts = FindIn(room_, job);
  }
  return parts;
}

ReasonCode Planner::WhyNot(const QueuedJob& job) {
  if (cluster_.nodes.empty()) return ReasonCode::kNoNodes;
  if (!room_.CouldEverHold(job)) return ReasonCode::kNeverFits;
  return room_.Holds(job) ? ReasonCode::kWaitsBehindJob : ReasonCode::kWaitsForDevices;
}

/// Nothing is reserved for a gang that only lost nodes would complete: they may never return.
void Planner::Reserve(const QueuedJob& job) {
  auto ends = cluster_.ends;
  const auto victims =
      room_.WillHold(job) ? std::vector<JobId>() : room_.ChooseVictims(job, cluster_.holders);
  for (const JobId victim : victims) {
    plan.victims.push_back(victim);
    ends[victim] = cluster_.now + cluster_.holders.at(victim).to_stop;
  }
  plan.reserved = room_.Reserve(job, ends);
  if (!plan.reserved) return;
  plan.reserved->estimate = std::any_of(plan.reserved->parts.begin(), plan.reserved->parts.end(),
                                        [this](const Part& part) { return IsHeldByGuess(part); });
  Count(job, DevicesOf(plan.reserved->parts));
  beside_ = room_;
  beside_->Take(plan.reserved->parts);
}

}  // namespace

uint32_t NodeSlots::Free() const {
  return static_cast<uint32_t>(std::count(holders.begin(), holders.end(), JobId()));
}

const Labels& NodeSlots::LabelsOrNone() const {
  static const Labels none;
  return kind ? kind->labels : none;
}

bool NodeSlots::DeviceDoes(const Needs& needs, size_t i) const {
  if (!AsksOfDevices(needs)) return true;
  return kind != nullptr && i < kind->devices.size() && Does(needs, kind->devices[i]);
}

std::vector<uint32_t> NodeSlots::Suitable(const Needs& needs, const std::vector<uint32_t>& indexes) const {
  if (!AsksOfDevices(needs)) return indexes;
  std::vector<uint32_t> out;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (DeviceDoes(needs, i) && std::find(indexes.begin(), indexes.end(), devices[i]) != indexes.end())
      out.push_back(devices[i]);
  }
  return out;
}

uint32_t NodeSlots::CountOf(const Needs& needs, const std::vector<uint32_t>& indexes) const {
  return static_cast<uint32_t>(AsksOfDevices(needs) ? Suitable(needs, indexes).size() : indexes.size());
}

uint32_t NodeSlots::RoomFor(const Needs& needs) const {
  if (!Does(needs, LabelsOrNone())) return 0;
  return CountOf(needs, devices);
}

uint32_t NodeSlots::FreeFor(const Needs& needs) const {
  std::vector<uint32_t> free;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (holders[i] == JobId()) free.push_back(devices[i]);
  }
  if (needs.whole_nodes && free.size() < devices.size()) return 0;
  return std::min(RoomFor(needs), CountOf(needs, free));
}

void NodeSlots::Take(JobId job, const Part& part) {
  for (size_t i = 0; i < devices.size(); ++i) {
    const bool wanted =
        part.whole || std::find(part.devices.begin(), part.devices.end(), devices[i]) != part.devices.end();
    if (wanted && holders[i] == JobId()) holders[i] = job;
  }
}

Fit FitOf(const std::vector<NodeSlots>& nodes, const QueuedJob& job) {
  const auto groups = GroupsOf(nodes, job.folder);
  std::map<size_t, Fit> fits;
  std::optional<size_t> wanted;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const NodeSlots& node = nodes[i];
    Fit& fit = fits[groups[i]];
    if (!job.folder.empty() && node.id == job.resumes_with) wanted = groups[i];
    if (node.RoomFor(job.needs) < job.ranks_per_node) continue;
    ++fit.with_lost;
    if (node.usable && !job.avoid.contains(node.id) && node.FreeFor(job.needs) >= job.ranks_per_node)
      ++fit.free_now;
  }
  if (wanted) return fits.at(*wanted);
  Fit best;
  for (const auto& [group, fit] : fits) {
    best.free_now = std::max(best.free_now, fit.free_now);
    best.with_lost = std::max(best.with_lost, fit.with_lost);
  }
  return best;
}

std::optional<size_t> PlaceIn(const std::vector<QueuedJob>& queue, const QueuedJob& key) {
  const auto place = std::lower_bound(queue.begin(), queue.end(), key,
                                      [](const QueuedJob& a, const QueuedJob& b) { return a.Before(b); });
  if (place == queue.end() || place->id != key.id) return std::nullopt;
  return static_cast<size_t>(place - queue.begin());
}

Plan MakePlan(const Snapshot& cluster, const std::vector<QueuedJob>& queue) {
  Planner planner(cluster);
  for (const auto& job : queue) planner.Consider(job);
  return std::move(planner.plan);
}

}  // namespace imgd
