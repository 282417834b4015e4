#include "server/core/scheduler.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "server/core/bit_set.h"
#include "server/core/first_of.h"
#include "server/core/needs.h"
#include "server/core/room.h"

namespace imgd {
namespace {

const Labels& LabelsOrNone(const NodeKind* kind) {
  static const Labels none;
  return kind != nullptr ? kind->labels : none;
}

/// Jobs that have devices reserved at once, at most, for what each costs.
constexpr size_t kMostReserved = 16;

/// A plan in the making.
class Planner {
 public:
  /// `cluster`, and the queue that is considered, must outlive it.
  Planner(const Snapshot& cluster, std::shared_ptr<Layout> layout)
      : cluster_(cluster),
        room_(cluster.nodes, std::move(layout)),
        allowances_(cluster.allowances.begin(), cluster.allowances.end()) {
    for (const auto& node : cluster.nodes) sizes_.insert(static_cast<uint32_t>(node.devices.size()));
  }
  void Consider(const QueuedJob& job);
  Plan plan;

 private:
  bool OverQuota(uint32_t devices) const;
  void Count(uint32_t devices);
  void KeepForLater(const QueuedJob& job);
  uint32_t MostOnEach(const QueuedJob& job, bool left) const;
  std::optional<QueuedJob> WithinQuota(const QueuedJob& job) const;
  uint32_t DevicesOf(const std::vector<Part>& parts) const;
  void Take(const QueuedJob& job, const std::vector<Part>& parts);
  std::optional<std::vector<Part>> Place(const QueuedJob& job);
  std::optional<std::vector<Part>> FindIn(Room& room, const QueuedJob& job);
  ReasonCode WhyNot(const QueuedJob& job);
  bool EndsInTime(const QueuedJob& job);
  void WaitFor(const QueuedJob& job, ReasonCode code);
  bool Reserve(const QueuedJob& job);
  bool IsHeldByGuess(const Part& part, const NodeSlots& node) const;

  using Allowances = std::vector<Allowance*>;
  const Allowances& AllowancesOf(const Shared<AccountNames>& accounts);

  const Snapshot& cluster_;
  Room room_;
  std::map<std::string, Allowance> allowances_;
  std::map<const AccountNames*, Allowances> of_accounts_;  ///< by the names' place in the queue
  const Allowances* of_job_ = nullptr;                     ///< those of the job that is considered
  std::set<uint32_t> sizes_;                               ///< how many devices there are on a node
  std::optional<Room> beside_;                             ///< without what is reserved; with plan.reserved
  std::vector<const BitSet*> nodes_of_;                    ///< that do for those of plan.reserved
  BitSet waited_for_;                                      ///< nodes that do for jobs that wait
  std::set<const BitSet*> counted_;                        ///< those of jobs that are in it
};

void Planner::Consider(const QueuedJob& job) {
  const bool retries_later = job.not_before > cluster_.now;
  if (retries_later && job.code != ReasonCode::kBackoff) {
    plan.waits.push_back({job.id, ReasonCode::kBackoff});
  }
  if (retries_later && !job.keeps_place) return;
  of_job_ = &AllowancesOf(job.accounts);
  const auto wait = [&](ReasonCode code) {
    if (!retries_later && job.code != code) plan.waits.push_back({job.id, code});
  };
  const auto over_quota = [&] {
    // For what fits nowhere no quota is kept from others.
    if (!room_.CouldEverHold(job)) return wait(WhyNot(job));
    KeepForLater(job);
    wait(ReasonCode::kQuota);
  };
  if (OverQuota(job.nodes * job.ranks_per_node)) return over_quota();
  const std::optional<QueuedJob> within = WithinQuota(job);
  const QueuedJob& wanted = within ? *within : job;
  if (auto parts = Place(wanted)) {
    if (OverQuota(DevicesOf(*parts))) return over_quota();
    Take(job, *parts);
    (retries_later ? plan.kept : plan.starts).push_back({job.id, std::move(*parts)});
    return;
  }
  const bool lacks_it = within && ((room_.Holds(job) && !room_.Holds(*within)) ||
                                   !room_.CouldHoldOnSmall(job, MostOnEach(job, true)));
  if (lacks_it) return over_quota();
  const ReasonCode code = WhyNot(wanted);
  WaitFor(wanted, code);
  wait(code);
}

/// Who comes after it and could use the same nodes has nothing reserved.
void Planner::WaitFor(const QueuedJob& job, ReasonCode code) {
  if (code != ReasonCode::kWaitsForDevices && code != ReasonCode::kWaitsBehindJob) return;
  const BitSet& nodes = room_.NodesFor(job);
  if (counted_.contains(&nodes)) return;
  // What only lost nodes would complete may wait for ever: they may never return.
  if (!room_.CouldHoldOnSmall(job, job.most_devices)) return;
  const bool first = code == ReasonCode::kWaitsForDevices && !waited_for_.Meets(nodes);
  if (first && plan.reserved.size() < kMostReserved && !Reserve(job)) return;
  counted_.insert(&nodes);
  waited_for_.Insert(nodes);
}

/// Those that there are.
auto Planner::AllowancesOf(const Shared<AccountNames>& accounts) -> const Allowances& {
  const auto [known, is_new] = of_accounts_.try_emplace(accounts.place());
  for (size_t i = 0; is_new && i < accounts->size(); ++i) {
    const auto allowance = allowances_.find((*accounts)[i]);
    if (allowance != allowances_.end()) known->second.push_back(&allowance->second);
  }
  return known->second;
}

/// The most devices that each node of a gang may have that has them for itself, so that the gang stays within
/// its quotas: `left` of them, or all.
uint32_t Planner::MostOnEach(const QueuedJob& job, bool left) const {
  uint32_t most = std::numeric_limits<uint32_t>::max();
  for (const Allowance* const allowance : *of_job_) {
    if (allowance->devices == 0) continue;
    const auto& [devices, used, used_up] = *allowance;
    most = std::min(most, (left ? devices - std::min(used, devices) : devices) / job.nodes);
  }
  return most;
}

/// The same job, kept off nodes that would take it above its quotas; nothing where there are none. Else such
/// nodes would be reserved and others preempted for it, over and over, and it never start. Said by a size
/// that there is, so that many jobs ask for the same.
std::optional<QueuedJob> Planner::WithinQuota(const QueuedJob& job) const {
  if (!job.needs->whole_nodes || allowances_.empty()) return std::nullopt;
  const auto too_large = sizes_.upper_bound(MostOnEach(job, true));
  if (too_large == sizes_.end()) return std::nullopt;
  QueuedJob within = job;
  within.most_devices = too_large == sizes_.begin() ? 0 : *std::prev(too_large);
  return within;
}

bool Planner::OverQuota(uint32_t devices) const {
  return std::any_of(of_job_->begin(), of_job_->end(),
                     [devices](const Allowance* allowance) { return !allowance->Has(devices); });
}

void Planner::Count(uint32_t devices) {
  for (Allowance* const allowance : *of_job_) allowance->used += devices;
}

/// What its accounts have left is for this job: their later, smaller ones would keep it waiting for ever. Not
/// where one of them may start nothing at all: that can last for weeks. Nor what its project has left while
/// its user has too little: the project's others would wait for what it cannot use. (What its user has left
/// is kept while it waits for its project, or it would have both only by chance.)
void Planner::KeepForLater(const QueuedJob& job) {
  uint32_t each = job.ranks_per_node;
  if (job.needs->whole_nodes) {
    const auto size = std::find_if(sizes_.begin(), sizes_.end(),
                                   [&](uint32_t most) { return room_.CouldHoldOnSmall(job, most); });
    if (size == sizes_.end() || *size > MostOnEach(job, false)) return;
    each = *size;
  }
  const uint32_t devices = job.nodes * each;
  const bool fits = std::all_of(of_job_->begin(), of_job_->end(), [devices](const Allowance* allowance) {
    return allowance->CouldHave(devices);
  });
  if (!fits) return;
  const auto lacks = [devices](const Allowance* allowance) { return !allowance->Has(devices); };
  // Users come before projects (AccountsOf).
  const auto last = std::find_if(of_job_->rbegin(), of_job_->rend(), lacks);
  const auto end = last == of_job_->rend() ? of_job_->end() : last.base();
  std::for_each(of_job_->begin(), end, [devices](Allowance* allowance) { allowance->used += devices; });
}

/// Of some of its devices only the holder itself says when it ends.
bool Planner::IsHeldByGuess(const Part& part, const NodeSlots& node) const {
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
    devices += cluster_.NodeOf(part.node)->devices.size() - part.devices.size();
  }
  return static_cast<uint32_t>(devices);
}

/// When a job starts again that waits for its retry is known but to a moment: no promise is made of its end.
void Planner::Take(const QueuedJob& job, const std::vector<Part>& parts) {
  Count(DevicesOf(parts));
  const auto nodes = room_.NodesOf(parts);
  const bool known = job.most > Duration::zero() && job.not_before <= cluster_.now;
  const Instant end = known ? cluster_.now + job.most : Instant::max();
  room_.Take(parts, nodes, end);
  if (beside_) beside_->Take(parts, nodes, end);
}

/// As many nodes as there are, of those that it takes, and as the quotas allow; at least those that it needs.
std::optional<std::vector<Part>> Planner::FindIn(Room& room, const QueuedJob& job) {
  if (job.max_nodes <= job.nodes) return room.Find(job);
  QueuedJob sized = job;
  sized.nodes = std::min(room.MostNodes(job), job.max_nodes);
  for (; sized.nodes > job.nodes; --sized.nodes) {
    if (OverQuota(sized.nodes * job.ranks_per_node)) continue;
    auto parts = room.Find(sized);
    if (parts && !OverQuota(DevicesOf(*parts))) return parts;
  }
  return room.Find(job);
}

/// On devices that are not reserved; or on any, where the job is over before those are needed.
std::optional<std::vector<Part>> Planner::Place(const QueuedJob& job) {
  auto parts = FindIn(beside_ ? *beside_ : room_, job);
  if (!parts && EndsInTime(job)) parts = FindIn(room_, job);
  return parts;
}

/// Before whatever is reserved on nodes that do for it is needed, where something is.
bool Planner::EndsInTime(const QueuedJob& job) {
  if (job.most <= Duration::zero()) return false;
  const Instant end = std::max(cluster_.now, job.not_before) + job.most;
  const BitSet& nodes = room_.NodesFor(job);
  bool any = false;
  for (size_t i = 0; i < plan.reserved.size(); ++i) {
    if (!nodes_of_[i]->Meets(nodes)) continue;
    const auto& from = plan.reserved[i].from;
    if (!from || end > *from) return false;
    any = true;
  }
  return any;
}

ReasonCode Planner::WhyNot(const QueuedJob& job) {
  if (cluster_.nodes.empty()) return ReasonCode::kNoNodes;
  if (!room_.CouldEverHold(job)) return ReasonCode::kNeverFits;
  return room_.Holds(job) ? ReasonCode::kWaitsBehindJob : ReasonCode::kWaitsForDevices;
}

/// False where nothing can be.
bool Planner::Reserve(const QueuedJob& job) {
  auto ends = cluster_.ends;
  auto victims = room_.WillHold(job) ? std::vector<JobId>() : room_.ChooseVictims(job, cluster_.holders);
  for (const JobId victim : victims) ends[victim] = cluster_.now + cluster_.holders.at(victim).to_stop;
  auto found = room_.Reserve(job, ends);
  if (!found) return false;
  Reservation& reserved = plan.reserved.emplace_back(std::move(*found));
  reserved.victims = std::move(victims);
  nodes_of_.push_back(&room_.NodesFor(job));
  const auto nodes = room_.NodesOf(reserved.parts);
  for (size_t i = 0; i < nodes.size() && !reserved.estimate; ++i)
    reserved.estimate = IsHeldByGuess(reserved.parts[i], cluster_.nodes[nodes[i]]);
  Count(DevicesOf(reserved.parts));
  if (!beside_) beside_ = room_;
  beside_->Take(reserved.parts, nodes, Instant::max());
  return true;
}

}  // namespace

const Reservation* ReservationOf(const Reservations& reserved, JobId job) {
  const auto of = std::find_if(reserved.begin(), reserved.end(),
                               [job](const Reservation& one) { return one.job == job; });
  return of == reserved.end() ? nullptr : &*of;
}

const Reservation* Snapshot::KeptFrom(const QueuedJob& job) const {
  const Reservation* first = nullptr;
  for (const auto& one : *reserved) {
    for (const auto& part : one.parts) {
      const NodeSlots* const node = NodeOf(part.node);
      if (node == nullptr || node->RoomFor(job.needs) == 0) continue;
      if (node->Free() > 0) return &one;
      if (first == nullptr) first = &one;
    }
  }
  return first;
}

bool QueuedJob::KeepsOff(const NodeSlots& node) const {
  return node.devices.size() > most_devices || avoid.contains(node.id);
}

const NodeSlots* Snapshot::NodeOf(const NodeId& id) const {
  const auto node =
      std::lower_bound(nodes.begin(), nodes.end(), id,
                       [](const NodeSlots& slots, const NodeId& wanted) { return slots.id < wanted; });
  return node != nodes.end() && node->id == id ? &*node : nullptr;
}

NodeSlots* Snapshot::NodeOf(const NodeId& id) {
  return const_cast<NodeSlots*>(std::as_const(*this).NodeOf(id));
}

uint32_t NodeSlots::Free() const {
  return static_cast<uint32_t>(std::count(holders.begin(), holders.end(), JobId()));
}

const Labels& NodeSlots::LabelsOrNone() const { return imgd::LabelsOrNone(kind.get()); }

bool NodeSlots::DeviceDoes(const Needs& needs, size_t i) const {
  if (!AsksOfDevices(needs)) return true;
  return kind != nullptr && i < kind->devices->size() && Does(needs, (*kind->devices)[i]);
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

NodeSorts::NodeSorts(const std::vector<NodeSlots>& nodes) {
  FirstOf<NodeSort, NodeSortHash> firsts(nodes.size());
  of.reserve(nodes.size());
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    const size_t first = firsts.With(nodes[i].Sort(), i);
    if (first == i) examples.push_back(i);
    of.push_back(first == i ? static_cast<uint32_t>(examples.size() - 1) : of[first]);
  }
}

const NodesCheck::Judged& NodesCheck::Of(const NodeSlots& node) {
  const auto [known, is_new] = known_.try_emplace(node.Sort());
  if (is_new) known->second = Judge(node.Sort());
  return known->second;
}

NodesCheck::Judged NodesCheck::Judge(const NodeSort& sort) {
  const bool asks_of_labels = !needs_.labels.empty() || !needs_.not_labels.empty();
  if (asks_of_labels && !imgd::Does(needs_, LabelsOrNone(sort.kind))) return {};
  const Devices devices(sort.kind != nullptr ? sort.kind->devices.place() : nullptr, sort.devices);
  if (last_.second == nullptr || last_.first != devices) last_ = {devices, &JudgeDevices(devices)};
  return *last_.second;
}

const NodesCheck::Judged& NodesCheck::JudgeDevices(const Devices& devices) {
  const auto [known, is_new] = of_devices_.try_emplace(devices);
  Judged& judged = known->second;
  if (!is_new) return judged;
  const auto& [kinds, count] = devices;
  std::vector<bool> does(count, true);
  if (AsksOfDevices(needs_)) {
    for (size_t i = 0; i < count; ++i)
      does[i] = kinds != nullptr && i < kinds->size() && imgd::Does(needs_, (*kinds)[i]);
  }
  judged.room = static_cast<uint32_t>(std::count(does.begin(), does.end(), true));
  if (judged.room > 0 && judged.room < count) judged.does = std::move(does);
  return judged;
}

bool NodesCheck::Does(const NodeSlots& node, size_t i) {
  const Judged& judged = Of(node);
  return judged.does.empty() || judged.does[i];
}

uint32_t NodesCheck::FreeFor(const NodeSlots& node) {
  const Judged& judged = Of(node);
  if (judged.room == 0) return 0;
  uint32_t free = 0;
  for (size_t i = 0; i < node.holders.size(); ++i) {
    const bool is_free = node.holders[i] == JobId();
    if (!is_free && needs_.whole_nodes) return 0;
    free += is_free && (judged.does.empty() || judged.does[i]) ? 1 : 0;
  }
  return free;
}

void NodeSlots::Take(JobId job, const Part& part) {
  for (size_t i = 0; i < devices.size(); ++i) {
    const bool wanted =
        part.whole || std::find(part.devices.begin(), part.devices.end(), devices[i]) != part.devices.end();
    if (wanted && holders[i] == JobId()) holders[i] = job;
  }
}

std::optional<size_t> PlaceIn(const std::vector<QueuedJob>& queue, const QueuedJob& key) {
  const auto place = std::lower_bound(queue.begin(), queue.end(), key,
                                      [](const QueuedJob& a, const QueuedJob& b) { return a.Before(b); });
  if (place == queue.end() || place->id != key.id) return std::nullopt;
  return static_cast<size_t>(place - queue.begin());
}

Plan MakePlan(const Snapshot& cluster, const std::vector<QueuedJob>& queue) {
  std::shared_ptr<Layout> none;
  return MakePlan(cluster, queue, none);
}

Plan MakePlan(const Snapshot& cluster, const std::vector<QueuedJob>& queue, std::shared_ptr<Layout>& memory) {
  Planner planner(cluster, LayoutFrom(memory, cluster.nodes));
  for (const auto& job : queue) planner.Consider(job);
  return std::move(planner.plan);
}

}  // namespace imgd
