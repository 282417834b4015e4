// What must always hold for jobs that may have more nodes than they need.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tests/sim/invariants.h"
#include "tests/sim/words.h"
#include "tests/sim/world.h"

namespace imgd::sim {
namespace {

using std::chrono::seconds;

/// Nodes are free for so long before a job grows onto them.
constexpr auto kSettles = seconds(30);

Duration IntervalOf(const World& world, const JobRecord& job) {
  return std::chrono::milliseconds(world.truths.at(job.name).submission.resize_interval_ms);
}

bool IsUsable(const World& world, const NodeId& id, bool away_too = false) {
  const NodeRecord* node = world.daemon.reactor().state().FindNode(id);
  return node != nullptr && (away_too || node->session != 0) && node->state == NodeState::kReady &&
         node->stale.empty() && node->foreign.empty() && !node->set_aside && node->problems.empty() &&
         !node->notice;
}

bool IsOn(const std::vector<Part>& parts, const NodeId& node) {
  return std::any_of(parts.begin(), parts.end(), [&node](const Part& part) { return part.node == node; });
}

bool Starts(const Batch& batch, JobId job) {
  return std::any_of(batch.actions.begin(), batch.actions.end(), [job](const Action& action) {
    const auto* event = std::get_if<AppendEvent>(&action);
    return event != nullptr && event->job == job && event->from != event->to &&
           event->to == JobState::kStarting;
  });
}

/// For each job that is ended in this commit so that it grows.
template <typename Rule>
void ForGrowing(World& world, const Batch& batch, const Rule& rule) {
  for (const auto& action : batch.actions) {
    const auto* event = std::get_if<AppendEvent>(&action);
    if (event == nullptr || event->reason.code != ReasonCode::kGrows || event->from == event->to) continue;
    if (event->to != JobState::kPreempting) continue;
    const JobRecord* job = world.daemon.reactor().state().FindJob(event->job);
    // One of a higher priority may have taken its place at once.
    if (job == nullptr || job->run.stop != StopFor::kGrow) continue;
    rule(*job, world.ledger.jobs[job->id]);
  }
}

/// A start lasts for the interval before it is ended to grow.
void GrowingIsRare(World& world, const Batch& batch, const char* name) {
  ForGrowing(world, batch, [&](const JobRecord& job, const Ledger::Job& known) {
    if (world.time.now().steady >= known.held_since + IntervalOf(world, job)) return;
    world.Break(name, fmt::format("job {} is resized too soon", job.id));
  });
}

/// Nothing is lost by it: a checkpoint is asked for first, and there is time for one. A program knows for
/// itself what it does in that time.
void GrowingSavesFirst(World& world, const Batch& batch, const char* name) {
  ForGrowing(world, batch, [&](const JobRecord& job, const Ledger::Job&) {
    for (const auto& action : batch.actions) {
      const auto* stop = std::get_if<SendStop>(&action);
      if (stop == nullptr || stop->run != RunKey{job.id, job.generation}) continue;
      if (stop->checkpoint_first == job.Trains() && stop->grace_ms >= 60'000) continue;
      world.Break(name, fmt::format("{} is ended without a checkpoint", InWords(stop->run)));
    }
  });
}

/// To be ended for it is no failure, whatever else happens meanwhile.
void GrowingIsNoFailure(World& world, const Batch& batch, const char* name) {
  for (const JobId id : batch.touched) {
    const JobRecord* job = world.daemon.reactor().state().FindJob(id);
    const Ledger::Job& known = world.ledger.jobs[id];
    if (job != nullptr && known.grows && job->failures > known.failures)
      world.Break(name, fmt::format("job {} was to grow, which counts as a failure", id));
  }
}

/// The job could have a part there, if nothing else were.
bool IsFor(const World& world, const NodeRecord& node, const JobRecord& job) {
  return node.devices.size() >= job.ranks_per_node &&
         NodeDoes(world.truths.at(job.name).submission.needs, node);
}

/// Of how many nodes that somebody could wait for that is true.
uint32_t NodesFor(const World& world, const JobRecord& job) {
  uint32_t count = 0;
  for (const auto& [id, node] : world.daemon.reactor().state().nodes()) {
    const bool there =
        node.state != NodeState::kLost && !node.set_aside && node.problems.empty() && !node.notice;
    count += there && IsFor(world, node, job) ? 1 : 0;
  }
  return count;
}

/// Growing gains something, and takes only what nobody who waits could use.
void GrowingTakesFromNobody(World& world, const Batch& batch, const char* name) {
  ForGrowing(world, batch, [&](const JobRecord& job, Ledger::Job& known) {
    known.grew_from = job.run.parts;
    known.grows_to = job.run.grows_to;
    if (known.grows_to.size() <= job.run.parts.size())
      world.Break(name, fmt::format("job {} is resized for nothing", job.id));
    for (const auto& part : job.run.grows_to) {
      if (!IsOn(job.run.parts, part.node) && job.run.avoided.contains(part.node))
        world.Break(name, fmt::format("job {} grows onto {}, which it was moved off", job.id, part.node));
    }
    const auto& state = world.daemon.reactor().state();
    for (const auto& entry : state.queue()) {
      const JobRecord& waits = *state.FindJob(entry.id);
      if (entry.code == ReasonCode::kNeverFits || entry.code == ReasonCode::kQuota ||
          NodesFor(world, waits) < waits.nodes)
        continue;
      for (const auto& part : job.run.grows_to) {
        if (IsOn(job.run.parts, part.node) || !IsFor(world, *state.FindNode(part.node), waits)) continue;
        world.Break(name,
                    fmt::format("job {} grows onto {}, for which job {} waits", job.id, part.node, entry.id));
      }
    }
  });
}

/// What a job is to have when it has grown nobody else has, or is to have.
void GrowingSharesNothing(World& world, const Batch& batch, const char* name) {
  ForGrowing(world, batch, [&](const JobRecord& job, const Ledger::Job&) {
    for (const auto& [id, other] : world.daemon.reactor().state().holdings()) {
      if (id != job.id && SharesDevices(world, job.run.grows_to, other.job->run.Held()))
        world.Break(name, fmt::format("job {} grows onto devices of job {}", job.id, id));
    }
  });
}

/// A job that was ended to grow goes on at once, with all that it had and was to have and that can be used;
/// on what it had also where an agent is not back yet.
void GrowingLosesNoPlace(World& world, const Batch& batch, const char* name) {
  for (const JobId id : batch.touched) {
    const JobRecord* job = world.daemon.reactor().state().FindJob(id);
    if (job == nullptr || IsFinal(job->state) || !EndedToGrow(batch, id)) continue;
    const auto& known = world.ledger.jobs[id];
    const auto& wanted = known.grows_to;
    const auto usable = std::count_if(wanted.begin(), wanted.end(), [&](const Part& part) {
      return IsUsable(world, part.node, IsOn(known.grew_from, part.node));
    });
    if (static_cast<size_t>(usable) < wanted.size()) continue;
    // One of a higher priority may have had it ended again at once.
    const bool same = Starts(batch, id) &&
                      (job->state != JobState::kStarting ||
                       (job->run.parts.size() == wanted.size() &&
                        std::all_of(wanted.begin(), wanted.end(),
                                    [job](const Part& part) { return IsOn(job->run.parts, part.node); })));
    if (!same) {
      world.Break(name, fmt::format("job {} was ended to have {} nodes and is {} with {}", id, wanted.size(),
                                    NameOf(job->state), job->run.parts.size()));
    }
  }
}

/// A node that the job could have besides its own; null where there is none. Not one that it crashed on or
/// was moved off before this start.
const NodeRecord* MoreFor(World& world, const JobRecord& job) {
  const NodeRecord* first = world.daemon.reactor().state().FindNode(job.run.parts.front().node);
  for (const auto& space : FreeSpace(world)) {
    const NodeId& id = space.node->id;
    if (space.devices < job.ranks_per_node || IsOn(job.run.parts, id) || job.run.avoided.contains(id))
      continue;
    if (IsTied(world, job) && (first == nullptr || first->filesystem_id != space.node->filesystem_id))
      continue;
    return space.node;
  }
  return nullptr;
}

bool NobodyWaitsOrLeaves(const World& world) {
  const auto& state = world.daemon.reactor().state();
  return state.queue().empty() &&
         std::all_of(state.holdings().begin(), state.holdings().end(),
                     [](const auto& held) { return held.second.job->run.stop == StopFor::kNothing; });
}

/// A start takes all that there is, where nobody else waits.
void AStartTakesWhatThereIs(World& world, const Batch& batch, const char* name) {
  if (!world.daemon.reactor().state().queue().empty() || world.daemon.reactor().WantsToSchedule()) return;
  for (const auto& action : batch.actions) {
    const auto* event = std::get_if<AppendEvent>(&action);
    if (event == nullptr || event->to != JobState::kStarting || event->from == event->to) continue;
    const JobRecord* job = world.daemon.reactor().state().FindJob(event->job);
    if (job == nullptr || job->state != JobState::kStarting || EndedToGrow(batch, job->id)) continue;
    const auto& wanted = world.truths.at(job->name).submission;
    if (job->run.parts.size() >= wanted.max_nodes || HasQuotas(world, *job)) continue;
    if (const NodeRecord* more = MoreFor(world, *job)) {
      world.Break(name, fmt::format("job {} starts with {} nodes and leaves {}", job->id,
                                    job->run.parts.size(), more->id));
    }
  }
}

/// What it may have, and for how long that is worth it, is the daemon's to say.
bool IsBounded(const World& world, const JobRecord& job) {
  return job.time_limit_ms != 0 || HasQuotas(world, job);
}

/// Of a job that holds devices, where nobody else waits or leaves; of one that is bounded: maybe.
bool CouldGrow(World& world, const JobRecord& job) {
  const Instant now = world.time.now().steady;
  return job.Trains() && job.state == JobState::kRunning &&
         job.run.parts.size() < world.truths.at(job.name).submission.max_nodes && !job.run.finished &&
         job.run.exits.empty() && job.run.troubles.empty() &&
         now >= world.ledger.jobs[job.id].held_since + IntervalOf(world, job) &&
         now >= world.daemon.disturbed() &&
         std::all_of(job.run.parts.begin(), job.run.parts.end(),
                     [&world](const Part& part) { return IsUsable(world, part.node); }) &&
         MoreFor(world, job) != nullptr;
}

/// When the cluster is quiet a job grows as soon as it may, of several the first in the order of the queue:
/// so the last one that could counts, and all begin anew where one can't any more, for which what is free may
/// have been. What a bounded one may take nobody else is sure of.
void JobsGrow(World& world, const Batch&, const char* name) {
  if (!world.quiet()) return;
  const Instant now = world.time.now().steady;
  const auto& holdings = world.daemon.reactor().state().holdings();
  const bool calm = NobodyWaitsOrLeaves(world) &&
                    std::none_of(holdings.begin(), holdings.end(), [&world](const auto& held) {
                      return IsBounded(world, *held.second.job) && CouldGrow(world, *held.second.job);
                    });
  auto& could_grow = world.ledger.could_grow;
  const auto before = std::exchange(could_grow, {});
  for (const auto& [id, holding] : holdings) {
    if (calm && CouldGrow(world, *holding.job)) could_grow[id] = now;
  }
  const bool all_still_can = std::all_of(before.begin(), before.end(),
                                         [&](const auto& one) { return could_grow.contains(one.first); });
  if (could_grow.empty() || !all_still_can) return;
  Instant last{};
  for (auto& [id, since] : could_grow) {
    const auto known = before.find(id);
    if (known != before.end() && known->second >= world.daemon.disturbed()) since = known->second;
    last = std::max(last, since);
  }
  const JobRecord& one = *holdings.at(could_grow.rbegin()->first).job;
  if (now > last + kSettles + seconds(5))
    world.Break(name, fmt::format("job {} could have had {} for long", one.id, MoreFor(world, one)->id));
}

}  // namespace

const std::vector<Invariant>& ElasticInvariants() {
  static const std::vector<Invariant> rules = {
      {"growing is rare", GrowingIsRare},
      {"growing saves first", GrowingSavesFirst},
      {"growing is no failure", GrowingIsNoFailure},
      {"growing takes from nobody", GrowingTakesFromNobody},
      {"growing shares nothing", GrowingSharesNothing},
      {"growing loses no place", GrowingLosesNoPlace},
      {"a start takes what there is", AStartTakesWhatThereIs},
      {"jobs grow", JobsGrow},
  };
  return rules;
}

}  // namespace imgd::sim
