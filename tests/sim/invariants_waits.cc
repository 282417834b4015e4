// What must always hold for jobs that come after others, before their time or in sweeps.
#include <algorithm>

#include "tests/sim/invariants.h"
#include "tests/sim/world.h"

namespace imgd::sim {
namespace {

using std::chrono::seconds;

/// As the issue has it, not as the core: COMPLETED is ok, FAILED is failed, any end is any.
bool EndedAsAsked(AfterEnd when, JobState state) {
  switch (when) {
    case AfterEnd::kOk:
      return state == JobState::kCompleted;
    case AfterEnd::kFailed:
      return state == JobState::kFailed;
    case AfterEnd::kAny:
      return IsFinal(state);
  }
  return false;
}

JobState StateOf(const World& world, JobId id) {
  const JobRecord* job = world.daemon.Stored(id);
  return job == nullptr ? JobState::kQueued : job->state;
}

const std::vector<Dependency>& AfterOf(const World& world, const JobRecord& job) {
  return world.ledger.after.at(job.id);
}

WallTime TimeOf(const World& world, const JobRecord& job) {
  return world.truths.at(job.name).submission.not_before;
}

/// What it comes after can't end as asked any more.
bool IsHopeless(const World& world, const JobRecord& job) {
  const auto& after = AfterOf(world, job);
  return std::any_of(after.begin(), after.end(), [&](const Dependency& dependency) {
    const JobState state = StateOf(world, dependency.job);
    return IsFinal(state) && !EndedAsAsked(dependency.when, state);
  });
}

bool WaitsForJobs(const World& world, const JobRecord& job) {
  const auto& after = AfterOf(world, job);
  return std::any_of(after.begin(), after.end(), [&](const Dependency& dependency) {
    return !EndedAsAsked(dependency.when, StateOf(world, dependency.job));
  });
}

const Ledger::Sweep* SweepOf(const World& world, const JobRecord& job) {
  return world.ledger.SweepOf(job.id, world.truths.at(job.name).sweep);
}

/// Its members for which `what` is true.
template <typename What>
uint32_t CountMembers(const World& world, const Ledger::Sweep& sweep, const What& what) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < sweep.members; ++i) {
    const JobRecord* job = world.daemon.reactor().state().FindJob(JobId(sweep.first.value() + i));
    if (job != nullptr && what(*job)) ++count;
  }
  return count;
}

template <typename Rule>
void ForStarts(World& world, const Batch& batch, const Rule& rule) {
  for (const auto& action : batch.actions) {
    const auto* event = std::get_if<AppendEvent>(&action);
    if (event == nullptr || event->first || event->to != JobState::kStarting || event->from == event->to)
      continue;
    const JobRecord* job = world.daemon.reactor().state().FindJob(event->job);
    if (job != nullptr && !job->by_hand) rule(*job);
  }
}

/// A job never starts before those that it comes after have ended as asked.
void NothingStartsBeforeWhatItComesAfter(World& world, const Batch& batch, const char* name) {
  ForStarts(world, batch, [&](const JobRecord& job) {
    if (WaitsForJobs(world, job)) world.Break(name, fmt::format("job {} started too early", job.id));
  });
}

void NothingStartsBeforeItsTime(World& world, const Batch& batch, const char* name) {
  ForStarts(world, batch, [&](const JobRecord& job) {
    if (world.time.now().wall < TimeOf(world, job))
      world.Break(name, fmt::format("job {} started before its time", job.id));
  });
}

/// Nothing waits for ever for what can't come: it has failed in the same commit, and says why. Nor does a job
/// fail for it that had no reason to.
void NothingWaitsForWhatCannotCome(World& world, const Batch& batch, const char* name) {
  for (const JobId id : batch.touched) {
    const JobRecord* job = world.daemon.reactor().state().FindJob(id);
    if (job == nullptr || job->by_hand) continue;
    if (job->reason.code == ReasonCode::kAfterNever && !IsHopeless(world, *job))
      world.Break(name, fmt::format("job {} has failed though nothing kept it", id));
  }
  if (world.ledger.checks % 64 != 0) return;
  for (const auto& [id, job] : world.daemon.stored()) {
    if (job.state == JobState::kQueued && IsHopeless(world, job))
      world.Break(name, fmt::format("job {} waits in vain: {}", id, job.reason.text));
  }
}

/// No more of a sweep hold devices at once than may.
void SweepsAreThrottled(World& world, const Batch& batch, const char* name) {
  ForStarts(world, batch, [&](const JobRecord& job) {
    const Ledger::Sweep* sweep = SweepOf(world, job);
    if (sweep == nullptr || sweep->max_running == 0) return;
    const uint32_t running =
        CountMembers(world, *sweep, [](const JobRecord& member) { return member.HoldsDevices(); });
    if (running > sweep->max_running)
      world.Break(name, fmt::format("{} jobs of the sweep of job {} run at once", running, job.id));
  });
}

/// Jobs with a result at this rung that are better; of equals the earlier ones.
uint32_t BetterThan(const Ledger& ledger, const Ledger::Sweep& sweep, size_t rung, JobId job) {
  const auto& results = ledger.rungs.at({sweep.first, rung});
  const double own = results.at(job);
  return static_cast<uint32_t>(std::count_if(results.begin(), results.end(), [&](const auto& other) {
    return other.second > own || (other.second == own && other.first < job);
  }));
}

uint32_t MayPass(const Ledger::Sweep& sweep, size_t rung) {
  uint32_t count = sweep.members;
  for (size_t i = 0; i <= rung; ++i) count /= sweep.halving->factor;
  return std::max(count, 1U);
}

/// Whoever is surely not among the best is stopped at once, and nobody else is.
void OnlyTheBestGoOn(World& world, const Batch& batch, const char* name) {
  bool news = false;
  for (const auto& action : batch.actions) {
    if (const auto* result = std::get_if<SaveRungResult>(&action)) {
      world.ledger.rungs[{result->sweep, result->rung}].emplace(result->job, result->value);
      news = true;
    }
  }
  if (!news && world.ledger.checks % 64 != 0) return;
  for (const auto& [first, sweep] : world.ledger.sweeps) {
    if (!sweep.halving) continue;
    for (uint32_t i = 0; i < sweep.members; ++i) {
      const JobId id(first.value() + i);
      const JobRecord* job = world.daemon.reactor().state().FindJob(id);
      if (job == nullptr || SweepOf(world, *job) != &sweep) continue;
      bool out = false;
      for (size_t rung = 0; rung < sweep.halving->rungs.size(); ++rung) {
        const auto results = world.ledger.rungs.find({sweep.first, rung});
        if (results == world.ledger.rungs.end() || !results->second.contains(id)) continue;
        out = out || BetterThan(world.ledger, sweep, rung, id) >= MayPass(sweep, rung);
      }
      const bool ends =
          IsFinal(job->state) ||
          (job->HoldsDevices() && (job->run.stop == StopFor::kHalve || job->run.stop == StopFor::kCancel ||
                                   job->run.stop == StopFor::kTimeLimit));
      const bool stopped = job->reason.code == ReasonCode::kHalved ||
                           (job->HoldsDevices() && job->run.stop == StopFor::kHalve);
      if (out && !ends) world.Break(name, fmt::format("job {} is not among the best and goes on", id));
      if (stopped && !out)
        world.Break(name, fmt::format("job {} was stopped though it is among the best", id));
    }
  }
}

}  // namespace

bool IsHeldBackRightly(const World& world, const JobRecord& job) {
  switch (job.reason.code) {
    case ReasonCode::kAfterJob:
      return WaitsForJobs(world, job) && !IsHopeless(world, job);
    case ReasonCode::kNotBefore: {
      // The daemon looks at the clock each second, when it is up and awake.
      const auto late = std::chrono::duration_cast<std::chrono::microseconds>(seconds(3)).count();
      const bool just = world.daemon.disturbed() > world.time.now().steady - seconds(5);
      return just || world.time.now().wall.micros < TimeOf(world, job).micros + late;
    }
    case ReasonCode::kSweepFull: {
      const Ledger::Sweep* sweep = SweepOf(world, job);
      const auto& state = world.daemon.reactor().state();
      return sweep != nullptr && sweep->max_running > 0 &&
             CountMembers(world, *sweep, [&](const JobRecord& member) {
               return member.HoldsDevices() || (member.state == JobState::kQueued &&
                                                PlaceIn(state.queue(), state.KeyOf(member)).has_value());
             }) >= sweep->max_running;
    }
    default:
      return false;
  }
}

const std::vector<Invariant>& WaitInvariants() {
  static const std::vector<Invariant> rules = {
      {"nothing starts before what it comes after", NothingStartsBeforeWhatItComesAfter},
      {"nothing starts before its time", NothingStartsBeforeItsTime},
      {"nothing waits for what cannot come", NothingWaitsForWhatCannotCome},
      {"sweeps are throttled", SweepsAreThrottled},
      {"only the best go on", OnlyTheBestGoOn},
  };
  return rules;
}

}  // namespace imgd::sim
