#include "server/core/forecast.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/core/allowances.h"
#include "server/core/bit_set.h"
#include "server/core/explain.h"
#include "server/core/room.h"

namespace imgd {
namespace {

/// Jobs times nodes that are looked at, at most.
constexpr size_t kMostWork = 1'000'000;

/// Of a job that is not in the queue yet: it comes after all others of its priority and turn.
constexpr JobId kNewJob{kForeignHolder.value() - 1};

/// The cluster to come, as one job after the other gets its place in it.
class Future {
 public:
  explicit Future(const Snapshot& cluster)
      : cluster_(cluster),
        nodes_(cluster.nodes),
        layout_(std::make_shared<Layout>(nodes_)),
        ends_(cluster.ends),
        allowances_(cluster) {}

  /// When the job starts, and from then on it holds its devices; nothing where nobody knows.
  std::optional<Instant> Place(const QueuedJob& job);

 private:
  /// Jobs that wait, those of one set for the same nodes and no others.
  struct Waiters {
    BitSet nodes;                 ///< that do for some of them
    std::optional<Instant> last;  ///< when the last of them starts; nothing where nobody knows
  };

  Waiters& Join(const BitSet& nodes);
  std::optional<Instant> PlaceIn(Room& room, const QueuedJob& job);
  void Occupy(const QueuedJob& job, const std::vector<Part>& parts, std::optional<Instant> start);

  const Snapshot& cluster_;
  std::vector<NodeSlots> nodes_;
  std::shared_ptr<Layout> layout_;
  EndTimes ends_;
  Allowances allowances_;
  std::vector<Waiters> waiters_;
};

/// Those who wait for some of these nodes, as one set.
auto Future::Join(const BitSet& nodes) -> Waiters& {
  Waiters all{.nodes = nodes, .last = cluster_.now};
  std::erase_if(waiters_, [&all, &nodes](const Waiters& some) {
    if (!some.nodes.Meets(nodes)) return false;
    all.nodes.Insert(some.nodes);
    all.last = all.last && some.last ? std::optional(std::max(*all.last, *some.last)) : std::nullopt;
    return true;
  });
  return waiters_.emplace_back(std::move(all));
}

std::optional<Instant> Future::Place(const QueuedJob& job) {
  // Its devices are kept for it, and are its own in the snapshot.
  if (cluster_.retrying.contains(job.id)) return job.not_before;
  if (job.code == ReasonCode::kQuota || allowances_.Lack(job, job.nodes * job.ranks_per_node))
    return std::nullopt;
  const std::optional<QueuedJob> within = allowances_.Within(job);
  Room room(nodes_, layout_);
  if (within && !allowances_.LeaveRoomFor(job, room)) return std::nullopt;
  return PlaceIn(room, within ? *within : job);
}

std::optional<Instant> Future::PlaceIn(Room& room, const QueuedJob& job) {
  const Instant earliest = std::max(cluster_.now, job.not_before);
  if (const auto parts = allowances_.FindIn(room, job)) {
    if (allowances_.Lack(job, allowances_.DevicesOf(*parts))) return std::nullopt;
    Occupy(job, *parts, earliest);
    return earliest;
  }
  // Others make room for it when it is the first of those who wait for these nodes.
  Waiters& waiters = Join(room.NodesFor(job));
  const auto reserved = waiters.last ? room.ReserveByPreemption(job, ends_, cluster_.holders, *waiters.last)
                                     : room.Reserve(job, ends_);
  if (!reserved) return std::nullopt;
  std::optional<Instant> start = reserved->from;
  if (start) start = std::max(*start, earliest);
  waiters.last = start && waiters.last ? std::optional(std::max(*start, *waiters.last)) : std::nullopt;
  Occupy(job, reserved->parts, start);
  return start;
}

void Future::Occupy(const QueuedJob& job, const std::vector<Part>& parts, std::optional<Instant> start) {
  allowances_.Count(job, allowances_.DevicesOf(parts));
  for (const auto& part : parts) {
    const auto node =
        std::lower_bound(nodes_.begin(), nodes_.end(), part.node,
                         [](const NodeSlots& slots, const NodeId& wanted) { return slots.id < wanted; });
    for (size_t i = 0; i < node->devices.size(); ++i) {
      if (part.Takes(node->devices[i])) node->holders[i] = job.id;
    }
  }
  if (start && job.most > Duration::zero()) ends_[job.id] = *start + job.most;
}

/// Puts it behind the others of its priority and turn, and returns its place.
size_t Insert(std::vector<QueuedJob>& queue, QueuedJob job) {
  job.id = kNewJob;
  job.code = ReasonCode::kNone;
  const auto at = std::upper_bound(queue.begin(), queue.end(), job,
                                   [](const QueuedJob& a, const QueuedJob& b) { return a.Before(b); });
  const auto place = static_cast<size_t>(at - queue.begin());
  queue.insert(at, std::move(job));
  return place;
}

/// What is kept for those who wait for their retry is theirs in the snapshot.
void LeaveOutRetries(const Snapshot& cluster, std::vector<QueuedJob>& queue, size_t& place) {
  if (cluster.retrying.empty()) return;
  const auto retries = [&cluster](const QueuedJob& job) { return cluster.retrying.contains(job.id); };
  const auto own = queue.begin() + static_cast<std::ptrdiff_t>(place);
  place -= static_cast<size_t>(std::count_if(queue.begin(), own, retries));
  std::erase_if(queue, retries);
}

}  // namespace

std::optional<Instant> ForecastStart(const Snapshot& cluster, const std::vector<QueuedJob>& queue,
                                     size_t place) {
  if ((place + 1) * std::max<size_t>(cluster.nodes.size(), 1) > kMostWork) return std::nullopt;
  return ForecastStarts(cluster, queue, place + 1).back();
}

std::vector<std::optional<Instant>> ForecastStarts(const Snapshot& cluster,
                                                   const std::vector<QueuedJob>& queue, size_t most) {
  const size_t can = kMostWork / std::max<size_t>(cluster.nodes.size(), 1);
  std::vector<std::optional<Instant>> starts(std::min(most, queue.size()));
  Future future(cluster);
  for (size_t place = 0; place < std::min(starts.size(), can); ++place)
    starts[place] = future.Place(queue[place]);
  return starts;
}

std::optional<Instant> ForecastLater(const Snapshot& cluster, std::vector<QueuedJob> queue, QueuedJob job) {
  size_t place = Insert(queue, std::move(job));
  LeaveOutRetries(cluster, queue, place);
  return ForecastStart(cluster, queue, place);
}

Prospect ProspectOf(const Snapshot& cluster, std::vector<QueuedJob> queue, QueuedJob job) {
  size_t place = Insert(queue, std::move(job));
  const size_t position = place + 1;
  const std::optional<QueuedJob> ahead = place > 0 ? std::optional(queue[place - 1]) : std::nullopt;
  LeaveOutRetries(cluster, queue, place);
  const Plan plan = MakePlan(cluster, queue);
  for (const auto& start : plan.starts) {
    if (start.job != kNewJob) continue;
    std::string nodes;
    for (const auto& part : start.parts) nodes += fmt::format("{}{}", nodes.empty() ? "" : ", ", part.node);
    return {ReasonCode::kPlaced, fmt::format("it would start at once, on {}", nodes), cluster.now};
  }
  Prospect prospect;
  for (const auto& wait : plan.waits) {
    if (wait.job == kNewJob) prospect.code = queue[place].code = wait.code;
  }
  Snapshot with = cluster;
  with.reserved = std::make_shared<const Reservations>(plan.reserved);
  with.job_names[kNewJob] = "this one";
  const Waiting waiting{
      .job = queue[place], .code = prospect.code, .position = position, .ahead = ahead ? &*ahead : nullptr};
  prospect.text = fmt::format("it would wait: {}", ExplainWait(with, waiting));
  if (const Reservation* const own = ReservationOf(plan.reserved, kNewJob)) {
    for (const JobId victim : own->victims)
      prospect.text += fmt::format("; {} would be preempted for it", NameOfJob(cluster, victim));
  }
  prospect.start = ForecastStart(cluster, queue, place);
  return prospect;
}

}  // namespace imgd
