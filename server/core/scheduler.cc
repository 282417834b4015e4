#include "server/core/scheduler.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "server/core/allowances.h"
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

/// Jobs that have devices reserved at once, at most, for what each costs: that are the first for their nodes,
/// and that are not.
constexpr size_t kMostFirst = 16;
constexpr size_t kMostBehind = 16;

/// Nodes of many sets, which many jobs share.
class NodeSets {
 public:
  bool Has(const BitSet& set) const { return sets_.contains(&set); }
  /// `set` must outlive it.
  void Add(const BitSet& set) {
    if (sets_.insert(&set).second) nodes_.Insert(set);
  }
  bool Meet(const BitSet& nodes) const { return nodes_.Meets(nodes); }

 private:
  std::set<const BitSet*> sets_;
  BitSet nodes_;
};

/// A plan in the making.
class Planner {
 public:
  /// `cluster`, and the queue that is considered, must outlive it.
  Planner(const Snapshot& cluster, std::shared_ptr<Layout> layout)
      : cluster_(cluster), room_(cluster.nodes, std::move(layout)), allowances_(cluster) {}
  /// Before any is considered.
  void NotePromised(const std::vector<QueuedJob>& queue);
  void Consider(const QueuedJob& job);
  /// Once all are considered.
  void Finish();
  Plan plan;

 private:
  /// Jobs that wait for devices, by the first of those who wait for the same nodes.
  struct Waiter {
    const BitSet* nodes;
    JobId first;
  };

  struct Wait {
    const QueuedJob* job;
    ReasonCode code;
  };

  bool IsAsTheLast(const QueuedJob& job) const;
  void Decide(const QueuedJob& job);
  ReasonCode WaitForQuota(const QueuedJob& job);
  bool LacksQuotaNow(const QueuedJob& job);
  void Start(const QueuedJob& job, std::vector<Part> parts);
  std::optional<std::vector<Part>> Place(const QueuedJob& job);
  ReasonCode WhyNot(const QueuedJob& job);
  bool EndsInTime(const QueuedJob& job);
  bool IsBeforePromised(const BitSet& nodes) const {
    return !promised_.empty() && promised_.back().Meets(nodes);
  }
  void WaitFor(const QueuedJob& job, ReasonCode code);
  bool Reserve(const QueuedJob& job);
  bool ReserveAfterOthers(const QueuedJob& job);
  void Keep(const QueuedJob& job, Reservation reserved);
  JobId PassedOverOn(const std::vector<uint32_t>& nodes) const;
  bool IsHeldByGuess(const Part& part, const NodeSlots& node) const;

  const Snapshot& cluster_;
  Room room_;
  Allowances allowances_;
  std::optional<Allowances> given_;  ///< once something starts: without what is only kept for somebody
  std::vector<Wait> waits_;          ///< in the order of the queue
  size_t changes_ = 0;               ///< of what those after it find: starts, and what is kept or reserved
  /// Who was considered last, where it waits and changed nothing by that.
  std::optional<Wait> last_;
  std::optional<Room> beside_;           ///< without what is reserved; with plan.reserved
  std::vector<const BitSet*> nodes_of_;  ///< that do for those of plan.reserved
  std::vector<Waiter> waiters_;          ///< in the order of the queue
  NodeSets waited_for_;                  ///< that do for them
  NodeSets may_be_taken_;                ///< that do for jobs that may start first, nobody knows when
  size_t first_ = 0;                     ///< of plan.reserved those who are the first for their nodes
  /// The nodes of those who have had some reserved and are not considered yet, each with those after it; the
  /// last one first.
  std::vector<BitSet> promised_;
  bool has_had_some_ = false;  ///< the job that is considered is one of those, so that those before it know
};

void Planner::NotePromised(const std::vector<QueuedJob>& queue) {
  std::vector<const QueuedJob*> jobs;
  for (const auto& job : queue) {
    if (job.promised && jobs.size() < kMostFirst + kMostBehind) jobs.push_back(&job);
  }
  for (auto job = jobs.rbegin(); job != jobs.rend(); ++job) {
    BitSet nodes = promised_.empty() ? BitSet() : promised_.back();
    nodes.Insert(room_.NodesFor(**job));
    promised_.push_back(std::move(nodes));
  }
}

/// Of a storm of submits, or a large sweep, thousands in a row are the same.
void Planner::Consider(const QueuedJob& job) {
  if (last_ && IsAsTheLast(job)) {
    waits_.push_back({&job, last_->code});
    return;
  }
  const size_t before = changes_;
  Decide(job);
  last_.reset();
  const bool waits = !waits_.empty() && waits_.back().job == &job;
  if (waits && changes_ == before) last_ = waits_.back();
}

/// The same is asked for it as for the last one, and it has been promised as little.
bool Planner::IsAsTheLast(const QueuedJob& job) const {
  const auto asks = [](const QueuedJob& of) {
    return std::tie(of.priority, of.nodes, of.max_nodes, of.ranks_per_node, of.most, of.most_devices,
                    of.folder, of.resumes_with, of.avoid, of.promised);
  };
  const QueuedJob& last = *last_->job;
  return !job.promised && asks(job) == asks(last) && job.needs.place() == last.needs.place() &&
         job.accounts.place() == last.accounts.place() && job.not_before <= cluster_.now &&
         last.not_before <= cluster_.now;
}

void Planner::Decide(const QueuedJob& job) {
  has_had_some_ = job.promised && !promised_.empty();
  if (has_had_some_) promised_.pop_back();
  const bool retries_later = job.not_before > cluster_.now;
  if (retries_later && job.code != ReasonCode::kBackoff) {
    waits_.push_back({&job, ReasonCode::kBackoff});
  }
  if (retries_later && !job.keeps_place) {
    may_be_taken_.Add(room_.NodesFor(job));
    return;
  }
  const auto wait = [&](ReasonCode code) {
    if (!retries_later) waits_.push_back({&job, code});
  };
  if (allowances_.Lack(job, job.nodes * job.ranks_per_node)) return wait(WaitForQuota(job));
  const std::optional<QueuedJob> within = allowances_.Within(job);
  const QueuedJob& wanted = within ? *within : job;
  if (auto parts = Place(wanted)) {
    if (allowances_.Lack(job, allowances_.DevicesOf(*parts))) return wait(WaitForQuota(job));
    return Start(job, std::move(*parts));
  }
  if (within && !allowances_.LeaveRoomFor(job, room_)) return wait(WaitForQuota(job));
  const ReasonCode code = WhyNot(wanted);
  WaitFor(wanted, code);
  wait(code);
}

bool Planner::LacksQuotaNow(const QueuedJob& job) {
  if (!given_) return false;
  return given_->Lack(job, job.nodes * job.ranks_per_node) ||
         (given_->Within(job) && !given_->LeaveRoomFor(job, room_));
}

/// Who waits for devices may have lost its quota meanwhile to a later job that found some.
void Planner::Finish() {
  for (auto [job, code] : waits_) {
    const bool for_devices = code == ReasonCode::kWaitsForDevices || code == ReasonCode::kWaitsBehindJob;
    if (for_devices && ReservationOf(plan.reserved, job->id) == nullptr && LacksQuotaNow(*job))
      code = ReasonCode::kQuota;
    // What was free may have gone to one behind it that is over in time.
    if (code == ReasonCode::kWaitsBehindJob && !room_.Holds(*job)) code = ReasonCode::kWaitsForDevices;
    if (code != job->code) plan.waits.push_back({job->id, code});
  }
}

/// For what fits nowhere no quota is kept from others.
ReasonCode Planner::WaitForQuota(const QueuedJob& job) {
  if (!room_.CouldEverHold(job)) return WhyNot(job);
  if (allowances_.KeepFor(job, room_)) {
    may_be_taken_.Add(room_.NodesFor(job));
    ++changes_;
  }
  return ReasonCode::kQuota;
}

/// Who comes after it and could use the same nodes has nothing reserved, but for those that have had some,
/// and those before them: when they are done is when these can start.
void Planner::WaitFor(const QueuedJob& job, ReasonCode code) {
  if (code != ReasonCode::kWaitsForDevices && code != ReasonCode::kWaitsBehindJob) return;
  const BitSet& nodes = room_.NodesFor(job);
  const bool before_promised = IsBeforePromised(nodes);
  if (!has_had_some_ && !before_promised && waited_for_.Has(nodes)) return;
  // What only lost nodes would complete may wait for ever: they may never return.
  if (!room_.CouldHoldOnSmall(job, job.most_devices)) return;
  const bool first = code == ReasonCode::kWaitsForDevices && !waited_for_.Meet(nodes);
  const size_t others = plan.reserved.size() - first_;
  const bool keeps =
      has_had_some_ ? others < kMostBehind : before_promised && others + promised_.size() < kMostBehind;
  if (first && first_ < kMostFirst) {
    if (!Reserve(job)) return;
    ++first_;
  } else if (!first && keeps && !ReserveAfterOthers(job)) {
    return;
  }
  waited_for_.Add(nodes);
  waiters_.push_back({&nodes, job.id});
  ++changes_;
}

/// Of some of its devices only the holder itself says when it ends.
bool Planner::IsHeldByGuess(const Part& part, const NodeSlots& node) const {
  if (cluster_.estimated.empty()) return false;
  for (size_t i = 0; i < node.devices.size(); ++i) {
    if (part.Takes(node.devices[i]) && cluster_.estimated.contains(node.holders[i])) return true;
  }
  return false;
}

/// When a job starts again that waits for its retry is known but to a moment: no promise is made of its end.
void Planner::Start(const QueuedJob& job, std::vector<Part> parts) {
  ++changes_;
  const bool retries_later = job.not_before > cluster_.now;
  const uint32_t devices = allowances_.DevicesOf(parts);
  allowances_.Count(job, devices);
  std::optional<QuotaLeft> quota_left;
  if (parts.size() < job.max_nodes) quota_left = allowances_.LeftFor(job);
  if (!retries_later) {
    if (!given_) given_.emplace(cluster_);
    given_->Count(job, devices);
  }
  const auto nodes = room_.NodesOf(parts);
  const bool known = job.most > Duration::zero() && !retries_later;
  const Instant end = known ? cluster_.now + job.most : Instant::max();
  room_.Take(parts, nodes, end);
  if (beside_) beside_->Take(parts, nodes, end);
  (retries_later ? plan.kept : plan.starts)
      .push_back({.job = job.id,
                  .parts = std::move(parts),
                  .passes = PassedOverOn(nodes),
                  .quota_left = std::move(quota_left)});
}

/// The first of those who wait for some of these nodes.
JobId Planner::PassedOverOn(const std::vector<uint32_t>& nodes) const {
  const auto passed = std::find_if(waiters_.begin(), waiters_.end(), [&nodes](const Waiter& waiter) {
    return std::any_of(nodes.begin(), nodes.end(),
                       [&waiter](uint32_t node) { return waiter.nodes->Contains(node); });
  });
  return passed == waiters_.end() ? JobId() : passed->first;
}

/// On devices that are not reserved; or on any, where the job is over before those are needed.
std::optional<std::vector<Part>> Planner::Place(const QueuedJob& job) {
  auto parts = allowances_.FindIn(beside_ ? *beside_ : room_, job);
  if (!parts && EndsInTime(job)) parts = allowances_.FindIn(room_, job);
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

/// For the first who waits for its nodes. False where nothing can be.
bool Planner::Reserve(const QueuedJob& job) {
  auto found = room_.ReserveByPreemption(job, cluster_.ends, cluster_.holders, cluster_.now);
  if (!found) return false;
  found->estimate = found->estimate || may_be_taken_.Meet(room_.NodesFor(job));
  Keep(job, std::move(*found));
  return true;
}

/// What comes free when those before it are done, too. Nobody is preempted for it yet. False where nothing
/// can be.
bool Planner::ReserveAfterOthers(const QueuedJob& job) {
  Room& room = beside_ ? *beside_ : room_;
  auto found = room.ReserveOnceTaken(job, cluster_.ends, cluster_.holders, cluster_.now);
  if (!found) return false;
  // Of those before it some may wait for whom nothing is reserved.
  found->estimate = true;
  Keep(job, std::move(*found));
  return true;
}

void Planner::Keep(const QueuedJob& job, Reservation reserved) {
  ++changes_;
  reserved.place = job.Key();
  nodes_of_.push_back(&room_.NodesFor(job));
  const auto nodes = room_.NodesOf(reserved.parts);
  for (size_t i = 0; i < nodes.size() && !reserved.estimate; ++i)
    reserved.estimate = IsHeldByGuess(reserved.parts[i], cluster_.nodes[nodes[i]]);
  allowances_.Count(job, allowances_.DevicesOf(reserved.parts));
  if (!beside_) beside_ = room_;
  if (!promised_.empty()) {
    // Somebody behind it may have some reserved too.
    const bool known = job.most > Duration::zero() && reserved.from;
    beside_->Promise(reserved.parts, nodes, known ? *reserved.from + job.most : Instant::max());
  } else {
    beside_->Take(reserved.parts, nodes, Instant::max());
  }
  plan.reserved.push_back(std::move(reserved));
}

}  // namespace

const Reservation* ReservationOf(const Reservations& reserved, JobId job) {
  const auto of = std::find_if(reserved.begin(), reserved.end(),
                               [job](const Reservation& one) { return one.job == job; });
  return of == reserved.end() ? nullptr : &*of;
}

bool QueuedJob::KeepsOff(const NodeSlots& node) const { return IsTooLarge(node) || avoid.contains(node.id); }

bool QueuedJob::IsTooLarge(const NodeSlots& node) const { return node.devices.size() > most_devices; }

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

const NodesCheck::Judged& NodesCheck::Of(const NodeSort& sort) {
  const auto [known, is_new] = known_.try_emplace(sort);
  if (is_new) known->second = Judge(sort);
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
    if (part.Takes(devices[i]) && holders[i] == JobId()) holders[i] = job;
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
  planner.NotePromised(queue);
  for (const auto& job : queue) planner.Consider(job);
  planner.Finish();
  return std::move(planner.plan);
}

}  // namespace imgd
