// What must always hold where jobs of a lower priority make room for others.
#include <algorithm>
#include <map>
#include <vector>

#include "tests/sim/invariants.h"
#include "tests/sim/words.h"
#include "tests/sim/world.h"

namespace imgd::sim {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

/// Jobs that are asked in this commit to make room, and still are.
std::vector<const JobRecord*> Victims(const World& world, const Batch& batch) {
  std::vector<const JobRecord*> victims;
  for (const auto& action : batch.actions) {
    const auto* event = std::get_if<AppendEvent>(&action);
    if (event == nullptr || event->first || event->reason.code != ReasonCode::kPreempted) continue;
    if (!HoldsDevices(event->from) || event->to == JobState::kQueued) continue;
    const JobRecord* job = world.daemon.reactor().state().FindJob(event->job);
    const bool is = job != nullptr && job->HoldsDevices() && job->run.stop == StopFor::kPreempt &&
                    job->generation == event->generation;
    if (is) victims.push_back(job);
  }
  return victims;
}

/// Who waits for what the victim gives back; null where it has started or ended in the same commit.
const JobRecord* ForWhom(const World& world, const JobRecord& victim) {
  const auto& reactor = world.daemon.reactor();
  for (const auto& reserved : reactor.reserved()) {
    if (std::count(reserved.victims.begin(), reserved.victims.end(), victim.id) == 0) continue;
    const JobRecord* job = reactor.state().FindJob(reserved.job);
    return job != nullptr && job->state == JobState::kQueued ? job : nullptr;
  }
  return nullptr;
}

/// Victims() by who waits for what they give back.
std::map<const JobRecord*, std::vector<const JobRecord*>> VictimsByJob(const World& world,
                                                                       const Batch& batch) {
  std::map<const JobRecord*, std::vector<const JobRecord*>> by_job;
  for (const JobRecord* victim : Victims(world, batch)) {
    if (const JobRecord* high = ForWhom(world, *victim)) by_job[high].push_back(victim);
  }
  return by_job;
}

/// What is free is what the job could have had when the others were asked: nothing came free since, none of
/// it is kept for a retry, and no quota keeps it off whole nodes.
bool KnowsWhatWasFree(const World& world, const JobRecord& high) {
  const auto& reactor = world.daemon.reactor();
  if (reactor.WantsToSchedule() || (high.needs.whole_nodes && HasQuotas(world, high))) return false;
  const Instant late = std::max(world.time.now().steady - seconds(3), Instant{});
  return std::none_of(
      reactor.state().queue().begin(), reactor.state().queue().end(), [&](const QueuedJob& entry) {
        return entry.not_before > late || (entry.not_before != Instant{} && world.daemon.disturbed() > late);
      });
}

/// Adds what a run holds.
void Give(const World& world, const Run& run, std::vector<Space>& space) {
  for (const auto& part : run.Held()) {
    for (auto& node : space) {
      if (node.node->id == part.node) node.devices += static_cast<uint32_t>(DevicesOf(world, part).size());
    }
  }
}

/// Steps that the job had gained by its wait when it started.
int StepsAtStart(const World& world, const JobRecord& job) {
  if (world.shape.aging == Duration::zero()) return 0;
  const Duration waited = std::chrono::microseconds(job.started.micros - job.submitted.micros) -
                          std::chrono::milliseconds(job.held_ms);
  return static_cast<int>(std::max(waited, Duration::zero()) / world.shape.aging);
}

/// Only jobs that let it happen make room, and only for one of a higher priority that waits, does not fit
/// and could use a node of theirs.
void OnlyLowerOnesMakeRoom(World& world, const Batch& batch, const char* name) {
  for (const JobRecord* job : Victims(world, batch)) {
    const JobRecord* high = ForWhom(world, *job);
    const Submission& wanted = world.truths.at(job->name).submission;
    if (!world.shape.preemption || (!wanted.preemptible && !MayBeAboveQuota(world, *job))) {
      world.Break(name, fmt::format("job {} is not preemptible and is preempted", job->id));
      continue;
    }
    if (high == nullptr) continue;
    if (job->priority + StepsAtStart(world, *job) >= high->priority) {
      world.Break(name, fmt::format("job {} of priority {} and {} steps makes room for job {} of {}", job->id,
                                    job->priority, StepsAtStart(world, *job), high->id, high->priority));
    }
    const Needs& needs = world.truths.at(high->name).submission.needs;
    // What is kept for it to grow onto comes free with it.
    std::vector<Part> parts = world.ledger.jobs[job->id].grows_to;
    parts.insert(parts.end(), job->run.parts.begin(), job->run.parts.end());
    const bool of_use = std::any_of(parts.begin(), parts.end(), [&](const Part& part) {
      const NodeRecord* node = world.daemon.reactor().state().FindNode(part.node);
      const bool there = node != nullptr && (batch.nodes_touched || node->Usable());
      return there && NodeDoes(needs, *node) && !high->avoid.contains(part.node);
    });
    if (!of_use)
      world.Break(name, fmt::format("job {} makes room on nodes that job {} can't use", job->id, high->id));
  }
  for (const auto& [high, victims] : VictimsByJob(world, batch)) {
    if (KnowsWhatWasFree(world, *high) && Fits(world, *high, FreeSpace(world)))
      world.Break(name, fmt::format("job {} fits, and others make room for it", high->id));
  }
}

/// Nobody is asked to make room where those who leave anyway make enough of it. One that failed may come back
/// to what it had.
void ThoseWhoLeaveAreWaitedFor(World& world, const Batch& batch, const char* name) {
  if (batch.nodes_touched) return;
  for (const auto& [high, victims] : VictimsByJob(world, batch)) {
    if (!KnowsWhatWasFree(world, *high)) continue;
    auto space = FreeSpace(world);
    for (const auto& [id, holding] : world.daemon.reactor().state().holdings()) {
      const JobRecord& job = *holding.job;
      const bool leaves = job.run.stop != StopFor::kNothing && job.run.stop != StopFor::kGrow &&
                          job.run.stop != StopFor::kRetry;
      if (leaves && std::count(victims.begin(), victims.end(), &job) == 0) Give(world, job.run, space);
    }
    if (Fits(world, *high, space))
      world.Break(name,
                  fmt::format("job {} makes room for job {}, which only had to wait for those who leave",
                              victims.front()->id, high->id));
  }
}

/// Device-seconds that the job would lose.
double LossOf(const World& world, const JobRecord& job) {
  double devices = 0;
  for (const auto& part : job.run.Held()) devices += static_cast<double>(DevicesOf(world, part).size());
  return std::chrono::duration<double>(world.time.now().steady - world.ledger.jobs.at(job.id).kept_since)
             .count() *
         devices;
}

/// Those who make room for one, as long as all of them are of one rank.
struct Room {
  const std::vector<const JobRecord*>& victims;
  const JobRecord& high;
  int rank = 0;
  double loss = 0;
};

int RankOfRun(const World& world, const JobRecord& job) { return job.priority + StepsAtStart(world, job); }

/// The job could have made room in place of the victims.
bool CouldHaveBeenAsked(const World& world, const JobRecord& job, const Room& room) {
  if (std::count(room.victims.begin(), room.victims.end(), &job) > 0 || job.run.stop != StopFor::kNothing)
    return false;
  if (!world.truths.at(job.name).submission.preemptible || RankOfRun(world, job) > room.rank) return false;
  return job.run.gone_since == Instant{} && job.run.exits.empty() && job.run.troubles.empty();
}

/// So much is less than what the victims lose, however a checkpoint is counted: it counts a moment later for
/// the one of the two that looks at the clock.
bool IsMuchLess(double loss, const Room& room) { return 1.02 * loss + 10 <= room.loss; }

void NoOneAloneIsCheaper(World& world, const Room& room, const char* name) {
  const auto& state = world.daemon.reactor().state();
  for (const auto& [id, holding] : state.holdings()) {
    const JobRecord& other = *holding.job;
    if (!CouldHaveBeenAsked(world, other, room)) continue;
    const double loss = LossOf(world, other);
    if (RankOfRun(world, other) == room.rank && !IsMuchLess(loss, room)) continue;
    auto space = FreeSpace(world);
    Give(world, other.run, space);
    if (Fits(world, room.high, space)) {
      world.Break(name,
                  fmt::format("job {} loses {:.0f} device-seconds and would make room for job {}, where {} "
                              "jobs lose {:.0f}",
                              id, loss, room.high.id, room.victims.size(), room.loss));
    }
  }
}

/// Whoever alone could make room on a node for the least, and what that is; a job is at each of its nodes.
using Seat = std::pair<double, const JobRecord*>;
std::map<NodeId, Seat> CheapestOfEachNode(World& world, const Room& room) {
  const auto& state = world.daemon.reactor().state();
  std::map<NodeId, Seat> seats;
  for (const auto& [id, holding] : state.holdings()) {
    const JobRecord& other = *holding.job;
    if (!CouldHaveBeenAsked(world, other, room)) continue;
    auto with = FreeSpace(world);
    Give(world, other.run, with);
    const Seat seat{RankOfRun(world, other) == room.rank ? LossOf(world, other) : 0, &other};
    for (const auto& part : other.run.Held()) {
      const auto node = std::find_if(with.begin(), with.end(),
                                     [&part](const Space& space) { return space.node->id == part.node; });
      if (node == with.end() || !HasRoomOn(world, room.high, *node)) continue;
      const auto known = seats.emplace(part.node, seat).first;
      known->second = std::min(known->second, seat);
    }
  }
  return seats;
}

/// Nor are those of the cheapest nodes, even if each were counted once for each of its nodes.
void NoCheapestNodesAreCheaper(World& world, const Room& room, const char* name) {
  auto space = FreeSpace(world);
  const auto least = CheapestOfEachNode(world, room);
  std::vector<Seat> seats;
  for (const auto& node : space) {
    if (HasRoomOn(world, room.high, node)) {
      seats.emplace_back(0, nullptr);
    } else if (const auto known = least.find(node.node->id); known != least.end()) {
      seats.push_back(known->second);
    }
  }
  if (seats.size() < room.high.nodes) return;
  std::sort(seats.begin(), seats.end());
  double loss = 0;
  std::set<const JobRecord*> asked;
  for (size_t i = 0; i < room.high.nodes; ++i) {
    const auto [more, job] = seats[i];
    loss += more;
    if (job != nullptr && asked.insert(job).second) Give(world, job->run, space);
  }
  if (IsMuchLess(loss, room) && Fits(world, room.high, space))
    world.Break(name, fmt::format("{} jobs lose {:.0f} device-seconds and would make room for job {}, where "
                                  "{} jobs lose {:.0f}",
                                  asked.size(), loss, room.high.id, room.victims.size(), room.loss));
}

void RoomForOneIsMadeCheaply(World& world, const JobRecord& high,
                             const std::vector<const JobRecord*>& victims, const char* name) {
  for (const JobRecord* spared : victims) {
    auto space = FreeSpace(world);
    for (const JobRecord* job : victims) {
      if (job != spared) Give(world, job->run, space);
    }
    if (Fits(world, high, space))
      world.Break(name, fmt::format("job {} makes room for job {} and could be spared", spared->id, high.id));
  }
  Room room{.victims = victims, .high = high, .rank = RankOfRun(world, *victims.front())};
  for (const JobRecord* job : victims) {
    if (RankOfRun(world, *job) != room.rank) return;
    room.loss += LossOf(world, *job);
  }
  NoOneAloneIsCheaper(world, room, name);
  NoCheapestNodesAreCheaper(world, room, name);
}

/// None makes room that could be spared, and no others would have lost much less than those who do.
void RoomIsMadeCheaply(World& world, const Batch& batch, const char* name) {
  if (batch.nodes_touched) return;
  for (const auto& [high, victims] : VictimsByJob(world, batch)) {
    if (KnowsWhatWasFree(world, *high)) RoomForOneIsMadeCheaply(world, *high, victims, name);
  }
}

/// Ranks that train are told so, and have the time for a checkpoint.
void WhoMakesRoomSavesFirst(World& world, const Batch& batch, const char* name) {
  for (const JobRecord* job : Victims(world, batch)) {
    if (job->state != JobState::kPreempting || !job->run.exits.empty() || !job->run.troubles.empty())
      continue;
    for (const auto& action : batch.actions) {
      const auto* stop = std::get_if<SendStop>(&action);
      if (stop == nullptr || stop->run != RunKey{job->id, job->generation}) continue;
      const bool leaves = world.ledger.notices.contains(stop->node);
      if (stop->checkpoint_first != job->Trains() || (!leaves && stop->grace_ms < 60'000))
        world.Break(name, fmt::format("{} is ended without a checkpoint, or without time for one",
                                      InWords(stop->run)));
    }
  }
}

/// Who made room goes back to the queue, and that is no failure; unless it came to its end, or
/// somebody asked for something else meanwhile.
void ToMakeRoomIsNoFailure(World& world, const Batch& batch, const char* name) {
  for (const auto& action : batch.actions) {
    const auto* event = std::get_if<AppendEvent>(&action);
    if (event == nullptr || event->first || !HoldsDevices(event->from) || event->to != JobState::kQueued)
      continue;
    const JobRecord* job = world.daemon.reactor().state().FindJob(event->job);
    const Ledger::Job& known = world.ledger.jobs[event->job];
    if (job == nullptr || !known.preempted || event->generation != known.generation) continue;
    if (!IsGivenBack(event->reason.code))
      world.Break(name, fmt::format("job {} made room and is back for {}", job->id, event->reason.text));
    if (job->failures > known.failures)
      world.Break(name, fmt::format("job {} made room, which counts as a failure", job->id));
  }
}

}  // namespace

const std::vector<Invariant>& PreemptionInvariants() {
  static const std::vector<Invariant> rules = {
      {"only lower ones make room", OnlyLowerOnesMakeRoom},
      {"those who leave are waited for", ThoseWhoLeaveAreWaitedFor},
      {"room is made cheaply", RoomIsMadeCheaply},
      {"who makes room saves first", WhoMakesRoomSavesFirst},
      {"to make room is no failure", ToMakeRoomIsNoFailure},
  };
  return rules;
}

}  // namespace imgd::sim
