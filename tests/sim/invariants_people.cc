// What must always hold for what people ask of jobs and nodes.
#include <algorithm>

#include "tests/sim/invariants.h"
#include "tests/sim/world.h"

namespace imgd::sim {
namespace {

bool HasDevices(const World& world, JobId job) {
  const auto& nodes = world.daemon.reactor().state().nodes();
  return std::any_of(nodes.begin(), nodes.end(), [job](const auto& item) {
    return std::count(item.second.holders.begin(), item.second.holders.end(), job) > 0;
  });
}

/// A job that somebody paused does not start and is not in the queue until somebody resumes it; when it is
/// PAUSED it holds nothing. Nothing else is PAUSED.
void APausedJobStaysSo(World& world, const Batch& batch, const char* name) {
  const auto& state = world.daemon.reactor().state();
  const auto& paused = world.ledger.asked.paused;
  for (const JobId id : batch.touched) {
    const JobRecord* job = state.FindJob(id);
    if (job == nullptr || job->by_hand) continue;
    const bool is_paused = job->state == JobState::kPaused;
    if (is_paused && !paused.contains(id)) {
      world.Break(name, fmt::format("job {} is PAUSED and nobody asked for it", id));
    } else if (paused.contains(id) && job->state == JobState::kQueued) {
      world.Break(name, fmt::format("job {} was paused and is in the queue: {}", id, job->reason.text));
    } else if (is_paused && (HasDevices(world, id) || state.active().contains(id))) {
      world.Break(name, fmt::format("job {} is PAUSED and holds devices", id));
    }
  }
  for (const auto& action : batch.actions) {
    const JobRecord* job = StartedBy(world, action);
    if (job != nullptr && paused.contains(job->id))
      world.Break(name, fmt::format("job {} was paused and starts", job->id));
  }
}

/// Nothing starts on a node that somebody has drained or cordoned.
void NoGangOnANodeSetAside(World& world, const Batch& batch, const char* name) {
  for (const auto& action : batch.actions) {
    const JobRecord* job = StartedBy(world, action);
    if (job == nullptr) continue;
    for (const auto& part : job->run.parts) {
      if (world.ledger.asked.aside.contains(part.node))
        world.Break(name, fmt::format("job {} starts on {}, which is set aside", job->id, part.node));
    }
  }
}

/// What runs on a drained node is on its way off it.
void ADrainedNodeIsLeft(World& world, const Batch& batch, const char* name) {
  if (batch.touched.empty() && !batch.nodes_touched) return;
  const auto& state = world.daemon.reactor().state();
  for (const auto& [node, drained] : world.ledger.asked.aside) {
    if (!drained) continue;
    for (const JobId id : state.active()) {
      const Run& run = state.FindJob(id)->run;
      const bool stays = run.stop == StopFor::kNothing &&
                         std::any_of(run.parts.begin(), run.parts.end(),
                                     [&](const Part& part) { return part.node == node && !part.Over(); });
      if (stays) world.Break(name, fmt::format("job {} runs on {}, which is drained", id, node));
    }
  }
}

/// The next start of a job that was moved is on none of the nodes that it was on, unless it was paused
/// between.
void AMovedJobGoesElsewhere(World& world, const Batch& batch, const char* name) {
  for (const auto& action : batch.actions) {
    const auto* event = std::get_if<AppendEvent>(&action);
    if (event == nullptr || event->first || event->from == event->to) continue;
    auto& off = world.ledger.jobs[event->job].moved_off;
    const JobRecord* job = world.daemon.reactor().state().FindJob(event->job);
    if (job == nullptr || job->by_hand) continue;
    if (const JobRecord* started = StartedBy(world, action)) {
      for (const auto& part : started->run.parts) {
        if (off.contains(part.node))
          world.Break(name, fmt::format("job {} was moved off {} and starts there", event->job, part.node));
      }
    }
    off.clear();
    // One that has started again in this commit has another run now.
    if (event->to != JobState::kQueued || event->reason.code != ReasonCode::kMovedByUser) continue;
    if (job->generation != event->generation) continue;
    for (const auto& part : job->run.parts) off.insert(part.node);
  }
}

}  // namespace

const std::vector<Invariant>& PeopleInvariants() {
  static const std::vector<Invariant> rules = {
      {"a paused job stays so", APausedJobStaysSo},
      {"nothing starts on a node set aside", NoGangOnANodeSetAside},
      {"a drained node is left", ADrainedNodeIsLeft},
      {"a moved job goes elsewhere", AMovedJobGoesElsewhere},
  };
  return rules;
}

}  // namespace imgd::sim
