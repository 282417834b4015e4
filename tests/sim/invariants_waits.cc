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
  if (!world.ledger.Looks(64)) return;
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

uint32_t MayPass(const Ledger::Sweep& sweep, size_t rung) {
  uint32_t count = sweep.members;
  for (size_t i = 0; i <= rung; ++i) count /= sweep.halving->factor;
  return std::max(count, 1U);
}

/// Who goes on after rungs, as far as that is certain, by what members had there.
class Passing {
 public:
  Passing(const World& world, const Ledger::Sweep& sweep) : world_(world), sweep_(sweep) {}

  /// It was at the rung, and as many as may pass were better that surely came there rightly.
  bool IsOut(JobId id, size_t rung) const {
    const auto better = [&](JobId other) { return IsBetter(other, id, rung) && SurelyComes(other, rung); };
    return ValueAt(id, rung) && CountMembers(better) >= MayPass(sweep_, rung);
  }
  bool IsOut(JobId id) const {
    for (size_t rung = 0; rung < sweep_.halving->rungs.size(); ++rung) {
      if (IsOut(id, rung)) return true;
    }
    return false;
  }

 private:
  bool SurelyComes(JobId id, size_t rung) const {
    if (rung == 0) return true;
    const auto rival = [&](JobId other) {
      return other != id && MayBeAt(other, rung - 1) &&
             (IsBetter(other, id, rung - 1) || !ValueAt(other, rung - 1));
    };
    return ValueAt(id, rung - 1) && SurelyComes(id, rung - 1) &&
           CountMembers(rival) < MayPass(sweep_, rung - 1);
  }
  /// It is there, or may come, and is not out before.
  bool MayBeAt(JobId id, size_t rung) const {
    const JobRecord* job = world_.daemon.reactor().state().FindJob(id);
    const bool has_ended = job == nullptr || IsFinal(job->state);
    if (has_ended && !ValueAt(id, rung)) return false;
    for (size_t before = 0; before < rung; ++before) {
      if (IsOut(id, before)) return false;
    }
    return true;
  }
  std::optional<double> ValueAt(JobId id, size_t rung) const {
    const auto results = world_.ledger.rungs.find({sweep_.first, rung});
    if (results == world_.ledger.rungs.end() || !results->second.contains(id)) return std::nullopt;
    return results->second.at(id);
  }
  /// Both have been there; of equals the earlier is better.
  bool IsBetter(JobId id, JobId than, size_t rung) const {
    const auto own = ValueAt(id, rung);
    const auto other = ValueAt(than, rung);
    return own && other && (*own > *other || (*own == *other && id < than));
  }
  template <typename Test>
  uint32_t CountMembers(const Test& test) const {
    uint32_t count = 0;
    for (uint32_t i = 0; i < sweep_.members; ++i) count += test(JobId(sweep_.first.value() + i)) ? 1 : 0;
    return count;
  }

  const World& world_;
  const Ledger::Sweep& sweep_;
};

/// Whoever is surely not among the best is stopped at once, and nobody else is.
void OnlyTheBestGoOn(World& world, const Batch& batch, const char* name) {
  bool news = false;
  for (const auto& action : batch.actions) {
    if (const auto* result = std::get_if<SaveRungResult>(&action)) {
      world.ledger.rungs[{result->sweep, result->rung}].emplace(result->job, result->value);
      news = true;
    }
    const auto* event = std::get_if<AppendEvent>(&action);
    if (event != nullptr && IsFinal(event->to)) news = true;
  }
  if (!news && !world.ledger.Looks(64)) return;
  for (const auto& [first, sweep] : world.ledger.sweeps) {
    if (!sweep.halving) continue;
    for (uint32_t i = 0; i < sweep.members; ++i) {
      const JobId id(first.value() + i);
      const JobRecord* job = world.daemon.reactor().state().FindJob(id);
      if (job == nullptr || SweepOf(world, *job) != &sweep) continue;
      const bool out = Passing(world, sweep).IsOut(id);
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
