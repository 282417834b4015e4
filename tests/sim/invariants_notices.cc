// What must always hold for machines that are taken back, and for the jobs on them.
#include <algorithm>

#include "tests/sim/invariants.h"
#include "tests/sim/words.h"
#include "tests/sim/world.h"

namespace imgd::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// For the jobs' changes of state in this commit.
template <typename Rule>
void ForMoves(World& world, const Batch& batch, const Rule& rule) {
  for (const auto& action : batch.actions) {
    const auto* event = std::get_if<AppendEvent>(&action);
    if (event == nullptr || event->first || event->from == event->to) continue;
    const JobRecord* job = world.daemon.reactor().state().FindJob(event->job);
    if (job != nullptr && !job->by_hand) rule(*event, *job, world.ledger.jobs[event->job]);
  }
}

/// Nothing is placed on a node of which the daemon was told that it is being taken back.
void NoGangOnALeavingNode(World& world, const Batch& batch, const char* name) {
  ForMoves(world, batch, [&](const AppendEvent& event, const JobRecord& job, const Ledger::Job&) {
    if (event.to != JobState::kStarting || job.generation != event.generation) return;
    for (const auto& part : job.run.parts) {
      if (world.ledger.notices.contains(part.node))
        world.Break(name, fmt::format("job {} is placed on {}, which is taken back", job.id, part.node));
    }
  });
}

/// As soon as it is told, what runs there is being ended.
void WhatLeavesIsEmptied(World& world, const Batch&, const char* name) {
  if (world.ledger.notices.empty()) return;
  const auto& state = world.daemon.reactor().state();
  for (const auto& [id, holding] : state.holdings()) {
    const JobRecord& job = *holding.job;
    if (job.by_hand || job.run.stop != StopFor::kNothing) continue;
    for (const auto& part : job.run.parts) {
      if (part.Over() || !world.ledger.notices.contains(part.node)) continue;
      world.Break(name, fmt::format("job {} goes on on {}, which is taken back", id, part.node));
    }
  }
}

/// Its ranks can't save any more.
bool FellApart(const JobRecord& job) {
  return !job.run.troubles.empty() || std::any_of(job.run.exits.begin(), job.run.exits.end(),
                                                  [](const RankExit& exit) { return !exit.by_us; });
}

/// Ranks that train are asked for a checkpoint, and it and their end fit into the time that is left.
void ANoticeLeavesTime(World& world, const Batch& batch, const char* name) {
  const auto& state = world.daemon.reactor().state();
  for (const auto& action : batch.actions) {
    const auto* stop = std::get_if<SendStop>(&action);
    const JobRecord* job = stop == nullptr ? nullptr : state.FindJob(stop->run.job);
    if (job == nullptr || job->generation != stop->run.generation || job->run.stop != StopFor::kNotice)
      continue;
    if (job->Trains() && job->state == JobState::kPreempting && !stop->checkpoint_first && !FellApart(*job))
      world.Break(name, fmt::format("{} is ended without a checkpoint", InWords(stop->run)));
    if (!stop->checkpoint_first) continue;
    for (const auto& part : job->run.parts) {
      const auto notice = world.ledger.notices.find(part.node);
      if (notice == world.ledger.notices.end() || part.Over()) continue;
      const Duration left =
          std::chrono::microseconds(notice->second.at.micros - world.time.now().wall.micros);
      if (left > seconds(10) && 2 * milliseconds(stop->grace_ms) > left)
        world.Break(
            name, fmt::format("{} has {} ms for its checkpoint where {} has {} s left", InWords(stop->run),
                              stop->grace_ms, part.node, std::chrono::duration_cast<seconds>(left).count()));
      if (left > seconds(60) && stop->grace_ms < 20'000)
        world.Break(name,
                    fmt::format("{} has only {} ms for its checkpoint", InWords(stop->run), stop->grace_ms));
    }
  }
}

/// A run that was ended for a notice is no failure, whatever its ranks died of.
void ANoticeIsNoFailure(World& world, const Batch& batch, const char* name) {
  ForMoves(world, batch, [&](const AppendEvent& event, const JobRecord& job, const Ledger::Job& known) {
    if (!HoldsDevices(event.from) || event.to != JobState::kQueued || !known.gives_back) return;
    if (event.generation != known.generation) return;
    if (event.reason.code != ReasonCode::kSpotNotice)
      world.Break(name,
                  fmt::format("job {} was ended for a notice and is back for {}", job.id, event.reason.text));
    if (job.failures > known.failures)
      world.Break(name, fmt::format("job {} was ended for a notice, which counts as a failure", job.id));
  });
}

/// A job goes back for a notice only where there was one. Last in the table.
void OnlyWhatLeavesIsEmptied(World& world, const Batch& batch, const char* name) {
  ForMoves(world, batch, [&](const AppendEvent& event, const JobRecord& job, const Ledger::Job& known) {
    if (event.to != JobState::kPreempting || event.reason.code != ReasonCode::kSpotNotice) return;
    if (known.gives_back || job.generation != event.generation) return;
    const bool leaves = std::any_of(job.run.parts.begin(), job.run.parts.end(), [&](const Part& part) {
      return world.ledger.notices.contains(part.node) || world.ledger.noticed.contains(part.node);
    });
    if (!leaves)
      world.Break(name, fmt::format("job {} is ended for a notice that no node of it has", job.id));
  });
  world.ledger.noticed.clear();
}

}  // namespace

const std::vector<Invariant>& NoticeInvariants() {
  static const std::vector<Invariant> rules = {
      {"no gang on a leaving node", NoGangOnALeavingNode},
      {"what leaves is emptied", WhatLeavesIsEmptied},
      {"a notice leaves time", ANoticeLeavesTime},
      {"a notice is no failure", ANoticeIsNoFailure},
      {"only what leaves is emptied", OnlyWhatLeavesIsEmptied},
  };
  return rules;
}

}  // namespace imgd::sim
