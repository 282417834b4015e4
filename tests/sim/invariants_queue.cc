// What must always hold for the queue: order, reasons, reservations.
#include <algorithm>
#include <set>
#include <utility>

#include "server/core/job.h"
#include "tests/sim/invariants.h"
#include "tests/sim/world.h"

namespace imgd::sim {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

/// Failures in a row up to which a job that waits for its retry keeps its place: 1, 2, 4, 8, 16 s.
constexpr uint32_t kKeepsPlace = 5;

bool Changed(const Batch& batch) { return batch.nodes_touched || !batch.touched.empty(); }

const JobRecord& RecordOf(const World& world, const QueuedJob& entry) {
  return *world.daemon.reactor().state().FindJob(entry.id);
}

/// The core will look at the queue once more in its next step: what came free at the end of this one (a gang
/// that was asked to make room before any of its ranks had started) is nobody's yet, and is not told of yet.
bool LooksAgain(const World& world) { return world.daemon.reactor().WantsToSchedule(); }

bool WaitsForRetry(const World& world, const JobRecord& job) {
  return job.not_before > world.time.now().steady;
}

/// What is kept for its retry is so until the daemon has looked at the clock.
bool KeepsDevices(const World& world, const JobRecord& job) {
  const Instant late = std::max(world.time.now().steady - seconds(3), Instant{});
  return job.not_before > late || (job.not_before != Instant{} && world.daemon.disturbed() > late);
}

/// Its wait is over, and the daemon has looked at the clock since.
bool IsDue(const World& world, const JobRecord& job) {
  const Instant late = world.time.now().steady - seconds(3);
  return job.not_before < late && (job.not_before == Instant{} || world.daemon.disturbed() < late);
}

/// The first that has a claim: no retry that waits so long that others may go before it. Null where none has.
const JobRecord* FirstWithClaim(const World& world) {
  for (const auto& entry : world.daemon.reactor().state().queue()) {
    const JobRecord& job = RecordOf(world, entry);
    if (entry.code == ReasonCode::kQuota) continue;  // whether that is so is looked at elsewhere
    // What waits for its retry does not say whether it lacks a quota, and keeps its place only where not. Nor
    // does one that wants nodes for itself: its quota may keep it off the larger ones.
    const bool may_lack = WaitsForRetry(world, job) || entry.needs->whole_nodes;
    if (may_lack && LacksQuota(world, job)) return nullptr;
    if (!WaitsForRetry(world, job) || GivesBack(job.run.stop) || job.failures_in_row <= kKeepsPlace)
      return &job;
  }
  return nullptr;
}

/// What was free before jobs that come after this one started in the same plan.
struct Before {
  std::vector<Space> space;
  JobId taker;  ///< one of them; none where nobody started
};
Before BeforeLaterStarts(World& world, const Batch& batch, const JobRecord& first) {
  Before before{.space = FreeSpace(world)};
  const auto& state = world.daemon.reactor().state();
  const QueuedJob claim = state.KeyOf(first);
  for (const auto& action : batch.actions) {
    const auto* event = std::get_if<AppendEvent>(&action);
    if (event == nullptr || event->to != JobState::kStarting || event->from == event->to) continue;
    const JobRecord* job = world.daemon.reactor().state().FindJob(event->job);
    if (job == nullptr || !job->HoldsDevices() || !claim.Before(state.KeyOf(*job))) continue;
    if (EndedToGrow(batch, job->id)) continue;  // what it goes on with was its own before
    before.taker = job->id;
    for (const auto& part : job->run.parts) {
      for (auto& node : before.space) {
        if (node.node->id == part.node) node.devices += static_cast<uint32_t>(DevicesOf(world, part).size());
      }
    }
  }
  return before;
}

/// Something was decided of it. What somebody asked in vain changes nothing, and its reason is of an earlier
/// plan.
bool IsInTheNews(const Batch& batch, JobId job) {
  return std::any_of(batch.actions.begin(), batch.actions.end(), [job](const Action& action) {
    const auto* event = std::get_if<AppendEvent>(&action);
    return event != nullptr && event->job == job;
  });
}

/// Everything that does not run has a reason, in a code and in words, and the code is true.
void NothingWaitsWithoutAReason(World& world, const Batch& batch, const char* name) {
  for (const JobId id : batch.touched) {
    const JobRecord* job = world.daemon.reactor().state().FindJob(id);
    if (job == nullptr) continue;
    if (job->reason.code == ReasonCode::kNone || job->reason.text.empty()) {
      world.Break(name, fmt::format("job {} is {} for no reason", id, NameOf(job->state)));
    }
    if (job->state != JobState::kQueued || LooksAgain(world) || !IsInTheNews(batch, id)) continue;
    // Whoever asks is told what the queue has; the record is not written for reasons that only take turns.
    const auto& state = world.daemon.reactor().state();
    if (!PlaceIn(state.queue(), state.KeyOf(*job))) {
      if (!IsHeldBackRightly(world, *job))
        world.Break(name, fmt::format("job {} is held back for what is not so: {}", id, job->reason.text));
      continue;
    }
    const QueuedJob& entry = state.queue()[*PlaceIn(state.queue(), state.KeyOf(*job))];
    const ReasonCode code = entry.code;
    const bool fits = Fits(world, *job, FreeSpace(world));
    const bool is_wait = code == ReasonCode::kWaitsForDevices || code == ReasonCode::kWaitsBehindJob ||
                         code == ReasonCode::kNeverFits || code == ReasonCode::kBackoff ||
                         code == ReasonCode::kNoNodes || IsGivenBack(code) ||
                         (code == ReasonCode::kQuota && LacksQuota(world, *job));
    const bool fitted = fits || Fits(world, *job, BeforeLaterStarts(world, batch, *job).space);
    // By what is left of a quota, from the larger nodes.
    const bool kept_off = entry.needs->whole_nodes && LacksQuota(world, *job);
    const bool no_nodes = world.daemon.reactor().state().nodes().empty();
    const bool kept = std::any_of(world.daemon.reactor().state().queue().begin(),
                                  world.daemon.reactor().state().queue().end(), [&](const QueuedJob& other) {
                                    return other.id != id && KeepsDevices(world, RecordOf(world, other));
                                  });
    if (!is_wait || (no_nodes && code != ReasonCode::kQuota) != (code == ReasonCode::kNoNodes) ||
        (code == ReasonCode::kWaitsBehindJob && !fitted) ||
        (code == ReasonCode::kWaitsForDevices && fits && !kept && !kept_off) ||
        (code == ReasonCode::kNeverFits && fits)) {
      world.Break(name, fmt::format("job {} waits for what is not so ({}{}): {}", id, static_cast<int>(code),
                                    fits ? ", it fits" : "", job->reason.text));
    }
  }
}

/// The first in the queue starts as soon as its gang fits.
void TheFirstStartsWhenItFits(World& world, const Batch& batch, const char* name) {
  if (!Changed(batch) || LooksAgain(world)) return;
  const JobRecord* first = FirstWithClaim(world);
  if (first == nullptr || !IsDue(world, *first)) return;
  if (Fits(world, *first, FreeSpace(world))) {
    world.Break(name, fmt::format("job {} fits and waits: {}", first->id, first->reason.text));
  }
}

/// A retry whose wait is over is looked at, though nothing else happens.
void WaitsEnd(World& world, const Batch&, const char* name) {
  const Instant late = world.time.now().steady - seconds(5);
  if (!world.ledger.Looks(16) || world.daemon.disturbed() > late) return;
  for (const auto& entry : world.daemon.reactor().state().queue()) {
    const JobRecord& job = RecordOf(world, entry);
    if (job.reason.code == ReasonCode::kBackoff && job.not_before < late) {
      world.Break(name, fmt::format("the wait of job {} is over and nobody looks", job.id));
    }
  }
}

/// Nobody who comes later takes the devices on which the first would fit, nor those of a retry that keeps its
/// place.
void NobodyOvertakesTheFirst(World& world, const Batch& batch, const char* name) {
  const bool starts = std::any_of(batch.actions.begin(), batch.actions.end(), [](const Action& action) {
    const auto* event = std::get_if<AppendEvent>(&action);
    return event != nullptr && event->to == JobState::kStarting;
  });
  if (!starts) return;
  const JobRecord* first = FirstWithClaim(world);
  if (first == nullptr || Fits(world, *first, FreeSpace(world))) return;
  // It was to go elsewhere when the others were placed, and only then may go anywhere.
  if (world.ledger.jobs[first->id].avoid != first->avoid) return;
  const Before before = BeforeLaterStarts(world, batch, *first);
  if (before.taker != JobId() && Fits(world, *first, before.space)) {
    world.Break(name, fmt::format("job {} took devices that job {} could have had", before.taker, first->id));
  }
}

/// How many of the devices in the reservation are held, by ours or by another cluster's.
uint32_t BusyOf(const World& world, const Reservation& reserved) {
  uint32_t busy = 0;
  const auto kept = KeptForGrowth(world);
  for (const auto& part : reserved.parts) {
    const NodeRecord* node = world.daemon.reactor().state().FindNode(part.node);
    for (const uint32_t device : DevicesOf(world, part)) {
      const bool foreign = node != nullptr && node->ForeignHolder(device);
      const std::pair held(part.node, device);
      busy += foreign || world.ledger.holders.contains(held) || kept.contains(held) ? 1 : 0;
    }
  }
  return busy;
}

/// Whether this plan started a job that comes before the other in the queue.
bool StartedBefore(const World& world, const Batch& batch, JobId other) {
  const auto& state = world.daemon.reactor().state();
  const QueuedJob claim = state.KeyOf(*state.FindJob(other));
  return std::any_of(batch.actions.begin(), batch.actions.end(), [&](const Action& action) {
    const auto* event = std::get_if<AppendEvent>(&action);
    if (event == nullptr || event->to != JobState::kStarting) return false;
    const JobRecord* job = state.FindJob(event->job);
    return job != nullptr && state.KeyOf(*job).Before(claim);
  });
}

/// A run gives its devices back, for which what is reserved is planned anew; or it is over, and has them for
/// as long as its last reports keep coming.
bool SomebodyLeaves(const World& world) {
  const auto& state = world.daemon.reactor().state();
  return std::any_of(state.holdings().begin(), state.holdings().end(), [](const auto& held) {
    const Run& run = held.second.job->run;
    return GivesBack(run.stop) || run.gone_since != Instant{};
  });
}

/// What is reserved for the first in the queue gets no later: its start, where that is known, is not pushed
/// back by jobs that start later, and where it is not known no more of its devices are taken. Unless nodes
/// come and go, or jobs that come before it, or another cluster's run is on a device: it may be under one of
/// ours.
///
/// That bounds the wait of the first, so that nobody starves. None of its devices that is free is given away,
/// so that within D, the longest time for which any job holds devices, one device less of the same nodes is
/// held; and other nodes are reserved only where fewer of the devices are held. So with n devices in the gang
/// it waits for at most (n + 1) * D on nodes that stay, but for as many turns again as nodes of the cluster
/// can be chosen in another way with equally many devices held. The one behind it becomes the first then. A
/// job of lower priority waits for as long as others of a higher one keep coming: that is the policy.
void AReservationHolds(World& world, const Batch& batch, const char* name) {
  if (!Changed(batch)) return;
  auto& promise = world.ledger.promise;
  const auto& queue = world.daemon.reactor().state().queue();
  const Reservation* const reserved =
      queue.empty() ? nullptr : ReservationOf(world.daemon.reactor().reserved(), queue.front().id);
  if (reserved == nullptr) {
    promise.reset();
    return;
  }
  const std::optional<Instant> from = reserved->estimate ? std::nullopt : reserved->from;
  const bool guessed = reserved->estimate;
  const uint32_t busy = reserved->from ? 0 : BusyOf(world, *reserved);
  const uint64_t nodes = LookAtNodes(world).digest;
  const Instant now = world.time.now().steady;
  if (!promise || promise->job != reserved->job || promise->nodes != nodes ||
      StartedBefore(world, batch, reserved->job) || SomebodyLeaves(world) || !world.ledger.foreign.empty()) {
    promise = {reserved->job, from, guessed, busy, now, nodes};
    return;
  }
  // What running jobs think of their end is no promise: by it others may be reserved, and all begins anew.
  if (guessed || promise->guessed) {
    promise = {reserved->job, from, guessed, busy, promise->first_since, nodes};
    return;
  }
  // Where nothing of it is held any more it only waits for a node to be back, and nobody knows when.
  const bool unknown = !from && busy > 0;
  if (promise->from && (unknown || (from && *from > *promise->from))) {
    world.Break(name, fmt::format("the start of job {} was put off", reserved->job));
  } else if (!promise->from && !from && busy > promise->busy) {
    world.Break(name, fmt::format("job {} waits for {} devices where it waited for {}", reserved->job, busy,
                                  promise->busy));
  }
  promise->from = from;
  promise->busy = busy;
}

/// Who had devices reserved since it has been waiting, and waits for devices, has some, whoever came before
/// it: while all nodes are there, and where not many have some.
void WhoHasDevicesReservedKeepsThem(World& world, const Batch& batch, const char* name) {
  constexpr size_t kMost = 16;
  const auto& reactor = world.daemon.reactor();
  auto& had = world.ledger.reserved;
  for (const JobId id : batch.touched) {
    const JobRecord* job = reactor.state().FindJob(id);
    if (job == nullptr || job->state != JobState::kQueued) had.erase(id);
  }
  if (!world.ledger.Looks(4) || reactor.WantsToSchedule()) return;
  for (const auto& one : reactor.reserved()) had[one.job] = reactor.state().FindJob(one.job)->generation;
  if (reactor.reserved().size() >= kMost || !world.ledger.foreign.empty() || !AllNodesAreThere(world)) return;
  for (const auto& entry : reactor.state().queue()) {
    const bool waits =
        entry.code == ReasonCode::kWaitsForDevices || entry.code == ReasonCode::kWaitsBehindJob;
    const auto known = had.find(entry.id);
    if (!waits || known == had.end() || known->second != RecordOf(world, entry).generation) continue;
    if (!entry.IsChoosy() && ReservationOf(reactor.reserved(), entry.id) == nullptr)
      world.Break(name, fmt::format("job {} had devices reserved and has none any more", entry.id));
  }
}

/// Of two who have the same device reserved the later one can start when the other is over.
void NothingIsPromisedTwice(World& world, const Batch&, const char* name) {
  const auto& reactor = world.daemon.reactor();
  const auto& reserved = reactor.reserved();
  if (!world.ledger.Looks(8) || reactor.WantsToSchedule()) return;
  for (size_t i = 0; i < reserved.size(); ++i) {
    const auto most = LongestStart(*reactor.state().FindJob(reserved[i].job));
    const bool ends = reserved[i].from && most;
    for (size_t j = i + 1; j < reserved.size(); ++j) {
      const auto& from = reserved[j].from;
      if (!from || !SharesDevices(world, reserved[i].parts, reserved[j].parts)) continue;
      if (!ends || *from < *reserved[i].from + *most)
        world.Break(name, fmt::format("jobs {} and {} have the same devices reserved at one time",
                                      reserved[i].job, reserved[j].job));
    }
  }
}

/// Who starts has none of the devices that are reserved for a job before it, unless it is over before this
/// one can start.
void WhatIsReservedIsLeftAlone(World& world, const Batch& batch, const char* name) {
  const auto& reactor = world.daemon.reactor();
  const Instant now = world.time.now().steady;
  for (const auto& action : batch.actions) {
    const JobRecord* const job = StartedBy(world, action);
    // What one that grew goes on with was kept for it already.
    if (job == nullptr || EndedToGrow(batch, job->id)) continue;
    const QueuedJob claim = reactor.state().KeyOf(*job);
    const auto most = LongestStart(*job);
    for (const auto& one : reactor.reserved()) {
      const JobRecord& first = *reactor.state().FindJob(one.job);
      const bool in_time = most && one.from && now + *most <= *one.from;
      if (in_time || !reactor.state().KeyOf(first).Before(claim)) continue;
      if (SharesDevices(world, one.parts, job->run.parts))
        world.Break(name, fmt::format("job {} got devices that are reserved for job {}", job->id, one.job));
    }
  }
}

/// The bound of AReservationHolds, with one such turn for each node. How long another cluster keeps a device
/// is not ours to bound.
void NobodyStarves(World& world, const Batch&, const char* name) {
  const auto& promise = world.ledger.promise;
  if (!promise || !world.ledger.Looks(16) || !world.ledger.foreign.empty()) return;
  const Instant now = world.time.now().steady;
  Duration longest = world.ledger.longest_hold;
  for (const JobId id : world.daemon.reactor().state().active()) {
    longest = std::max(longest, now - world.ledger.jobs[id].held_since);
  }
  const JobRecord* job = world.daemon.reactor().state().FindJob(promise->job);
  if (job == nullptr || job->state != JobState::kQueued) return;
  const uint64_t devices = job->needs.whole_nodes ? world.shape.most_devices : job->ranks_per_node;
  const uint64_t turns = job->nodes * devices + 1 + world.agents.size();
  if (now - promise->first_since > turns * (longest + minutes(1))) {
    world.Break(name, fmt::format("job {} has been the first for longer than the bound", job->id));
  }
}

}  // namespace

const std::vector<Invariant>& QueueInvariants() {
  static const std::vector<Invariant> rules = {
      {"nothing waits without a reason", NothingWaitsWithoutAReason},
      {"the first starts when it fits", TheFirstStartsWhenItFits},
      {"waits end", WaitsEnd},
      {"nobody overtakes the first", NobodyOvertakesTheFirst},
      {"a reservation holds", AReservationHolds},
      {"who has devices reserved keeps them", WhoHasDevicesReservedKeepsThem},
      {"nothing is promised twice", NothingIsPromisedTwice},
      {"what is reserved is left alone", WhatIsReservedIsLeftAlone},
      {"nobody starves", NobodyStarves},
  };
  return rules;
}

}  // namespace imgd::sim
