// What must always hold for each job and its gang.
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "server/core/job.h"
#include "tests/sim/invariants.h"
#include "tests/sim/words.h"
#include "tests/sim/world.h"

namespace imgd::sim {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

template <typename Rule>
void ForTouched(World& world, const Batch& batch, const Rule& rule) {
  for (const JobId id : batch.touched) {
    const JobRecord* job = world.daemon.reactor().state().FindJob(id);
    if (job != nullptr && !job->by_hand) rule(*job, world.ledger.jobs[id]);
  }
}

/// The job's changes of state in this commit.
template <typename Rule>
void ForChanges(World& world, const Batch& batch, const Rule& rule) {
  for (const auto& action : batch.actions) {
    const auto* event = std::get_if<AppendEvent>(&action);
    if (event == nullptr || event->first || event->from == event->to) continue;
    const JobRecord* job = world.daemon.reactor().state().FindJob(event->job);
    if (job != nullptr && !job->by_hand) rule(*event, *job, world.ledger.jobs[event->job]);
  }
}

/// No device is given to two gangs at once. (That no rank starts where another still lives is checked on the
/// simulated node, Agent::CheckDevices.)
void OneGangADevice(World& world, const Batch& batch, const char* name) {
  auto& holders = world.ledger.holders;
  ForTouched(world, batch, [&](const JobRecord& job, Ledger::Job& known) {
    if (job.HoldsDevices() && job.generation == known.generation) return;
    for (const auto& device : std::exchange(known.devices, {})) {
      holders.erase(device);
      --world.ledger.held[device.first];
    }
  });
  ForTouched(world, batch, [&](const JobRecord& job, Ledger::Job& known) {
    if (!job.HoldsDevices() || !known.devices.empty()) return;
    for (const auto& part : job.run.parts) {
      for (const uint32_t index : DevicesOf(world, part)) {
        const std::pair device(part.node, index);
        const auto [held, is_new] = holders.emplace(device, job.id);
        if (is_new) {
          ++world.ledger.held[part.node];
          known.devices.push_back(device);
          continue;
        }
        world.Break(
            name, fmt::format("jobs {} and {} hold device {} of {}", held->second, job.id, index, part.node));
      }
    }
  });
}

/// No gang is placed on a device of which the node has told that another cluster's run holds it.
void NoGangOnForeignDevices(World& world, const Batch& batch, const char* name) {
  ForChanges(world, batch, [&](const AppendEvent& event, const JobRecord& job, const Ledger::Job&) {
    if (event.to != JobState::kStarting || job.generation != event.generation) return;
    for (const auto& part : job.run.parts) {
      const auto held = world.ledger.foreign.find(part.node);
      if (held == world.ledger.foreign.end()) continue;
      const auto devices = DevicesOf(world, part);
      if (std::count(devices.begin(), devices.end(), held->second) == 0) continue;
      world.Break(name, fmt::format("job {} is placed on device {} of {}", job.id, held->second, part.node));
    }
  });
}

/// A gang is placed only on nodes that can be told: their streams are open, as far as the daemon knows.
void NoGangOutOfReach(World& world, const Batch& batch, const char* name) {
  ForChanges(world, batch, [&](const AppendEvent& event, const JobRecord& job, const Ledger::Job&) {
    if (event.to != JobState::kStarting || job.generation != event.generation) return;
    for (const auto& part : job.run.parts) {
      const NodeRecord* node = world.daemon.reactor().state().FindNode(part.node);
      if (node == nullptr || !world.network.ClosedByDaemon(node->session)) continue;
      world.Break(name, fmt::format("job {} is placed on {}, whose stream was closed", job.id, part.node));
    }
  });
}

/// A start has its rendezvous port within 30 s, and trains within 10 min, or it is ended.
void AStartIsBounded(World& world, const Batch&, const char* name) {
  if (!world.ledger.Looks(8)) return;
  for (const auto& [id, holding] : world.daemon.reactor().state().holdings()) {
    const JobRecord& job = *holding.job;
    if (job.state != JobState::kStarting || job.run.stop != StopFor::kNothing || job.by_hand) continue;
    // The port may be lost again with the agent that holds it.
    Ledger::Job& known = world.ledger.jobs[id];
    if (job.run.master_port != 0) {
      known.portless_since.reset();
    } else if (!known.portless_since) {
      known.portless_since = world.time.now().steady;
    }
    const Instant since =
        std::max({known.held_since, world.daemon.disturbed(), known.portless_since.value_or(Instant::min())});
    const Duration limit = job.run.master_port == 0 ? Duration(seconds(30)) : Duration(minutes(10));
    if (world.time.now().steady <= since + limit + seconds(5)) continue;
    world.Break(name, fmt::format("job {} has been starting for too long", id));
  }
}

/// A program has begun when its processes run: nobody else says so.
void AProgramIsSeenToRun(World& world, const Batch& batch, const char* name) {
  ForTouched(world, batch, [&](const JobRecord& job, const Ledger::Job&) {
    if (job.Trains() || job.state != JobState::kStarting || job.run.stop != StopFor::kNothing) return;
    const bool all = std::all_of(job.run.parts.begin(), job.run.parts.end(),
                                 [](const Part& part) { return part.phase == RunPhase::kRunning; });
    if (all) world.Break(name, fmt::format("all processes of job {} run and it is STARTING", job.id));
  });
}

/// A gang is whole: as many nodes as asked for (no fewer than the least and no more than the most), each with
/// as many devices, all ranks once, on nodes that see the same checkpoints and could be used when it was
/// placed.
void AGangIsWhole(World& world, const Batch& batch, const char* name) {
  ForChanges(world, batch, [&](const AppendEvent& event, const JobRecord& job, const Ledger::Job& known) {
    if (event.to != JobState::kStarting || job.generation != event.generation) return;
    std::set<NodeId> nodes;
    std::set<std::string> storages;
    std::vector<uint32_t> ranks;
    bool enough = true;
    for (const auto& part : job.run.parts) {
      nodes.insert(part.node);
      const NodeRecord* node = world.daemon.reactor().state().FindNode(part.node);
      storages.insert(node == nullptr ? "?" : node->filesystem_id);
      const std::set<uint32_t> devices(part.devices.begin(), part.devices.end());
      enough = enough && devices.size() == job.ranks_per_node && part.devices.size() == devices.size();
      for (uint32_t i = 0; i < part.Ranks(); ++i) ranks.push_back(part.first_rank + i);
    }
    bool each_once = ranks.size() == job.WorldSize();
    for (uint32_t i = 0; i < ranks.size(); ++i) each_once = each_once && ranks[i] == i;
    const Submission& wanted = world.truths.at(job.name).submission;
    const uint32_t most = std::max(wanted.nodes, wanted.max_nodes);
    if (!enough || !each_once || nodes.size() < wanted.nodes || nodes.size() > most) {
      world.Break(name, fmt::format("job {} has {} of {} to {} nodes and ranks {}", job.id, nodes.size(),
                                    wanted.nodes, most, fmt::join(ranks, ",")));
    }
    const bool tied = IsTied(world, job);
    if (tied && storages.size() != 1) {
      world.Break(name, fmt::format("job {} is on nodes of {} storages", job.id, storages.size()));
    } else if (tied && !known.accepted.empty() && !storages.contains(known.storage)) {
      world.Break(name, fmt::format("job {} is on {} and its checkpoints on {}", job.id, *storages.begin(),
                                    known.storage));
    }
  });
}

/// Terminal states are final.
void FinalIsFinal(World& world, const Batch& batch, const char* name) {
  ForTouched(world, batch, [&](const JobRecord& job, const Ledger::Job& known) {
    if (IsFinal(known.state) && job.state != known.state) {
      world.Break(name,
                  fmt::format("job {} was {} and is {}", job.id, NameOf(known.state), NameOf(job.state)));
    }
  });
}

/// Each start has the next generation, and nothing else has a new one.
void EachStartIsAGeneration(World& world, const Batch& batch, const char* name) {
  std::map<JobId, uint64_t> starts;
  ForChanges(world, batch, [&](const AppendEvent& event, const JobRecord&, const Ledger::Job&) {
    if (event.to == JobState::kStarting) ++starts[event.job];
  });
  ForTouched(world, batch, [&](const JobRecord& job, const Ledger::Job& known) {
    if (job.generation.value() == known.generation.value() + starts[job.id]) return;
    world.Break(name, fmt::format("job {} went from generation {} to {} in {} starts", job.id,
                                  known.generation, job.generation, starts[job.id]));
  });
}

/// At most one generation can commit a checkpoint: the job's latest, and never after a later one has.
void OneGenerationCommits(World& world, const Batch& batch, const char* name) {
  for (const auto& action : batch.actions) {
    const auto* saved = std::get_if<SaveCheckpoint>(&action);
    if (saved == nullptr) continue;
    const Generation known = world.ledger.jobs[saved->job].generation;
    if (saved->checkpoint.generation >= known) continue;
    world.Break(name, fmt::format("job {} of generation {} took a checkpoint of generation {}", saved->job,
                                  known, saved->checkpoint.generation));
  }
}

/// Each start goes on from the newest checkpoint that was accepted, and knows the latest start that may have
/// written others.
void AStartResumes(World& world, const Batch& batch, const char* name) {
  for (const auto& action : batch.actions) {
    const auto* start = std::get_if<SendStart>(&action);
    if (start == nullptr) continue;
    auto accepted = world.ledger.jobs[start->run.job].accepted;
    accepted.resize(std::min(accepted.size(), JobRecord::kCheckpointsKept));
    if (start->resume_from != accepted) {
      world.Break(name, fmt::format("{} resumes from {} where {} is the newest of {}", InWords(start->run),
                                    start->resume_from.empty() ? "nothing" : start->resume_from.front(),
                                    accepted.empty() ? "nothing" : accepted.front(), accepted.size()));
    }
    if (start->last_writer < world.gangs.NewestThatRan(start->run)) {
      world.Break(name, fmt::format("{} thinks that generation {} wrote last", InWords(start->run),
                                    start->last_writer));
    }
  }
}

/// All nodes of a start are told to meet at the same place: a port that is lost is asked for again only while
/// nobody else knows of it.
void AGangAgrees(World& world, const Batch& batch, const char* name) {
  for (const auto& action : batch.actions) {
    const auto* start = std::get_if<SendStart>(&action);
    if (start == nullptr) continue;
    Ledger::Job& known = world.ledger.jobs[start->run.job];
    if (std::exchange(known.told_of, start->run.generation) != start->run.generation) known.told.clear();
    const std::string place = fmt::format("{}:{}", start->master_address, start->master_port);
    known.told[start->node] = place;
    for (const auto& [node, other] : known.told) {
      if (other != place)
        world.Break(name, fmt::format("{} is to meet at {} by what {} was told, and at {} by what {} was",
                                      InWords(start->run), place, start->node, other, node));
    }
  }
}

/// What exit codes of a program mean is its own business: none of them ends the job for bad input.
void AProgramsExitCodesAreItsOwn(World& world, const Batch& batch, const char* name) {
  ForChanges(world, batch, [&](const AppendEvent& event, const JobRecord& job, const Ledger::Job&) {
    if (job.kind == imgd::JobKind::kCommand && event.reason.code == ReasonCode::kBadInput)
      world.Break(name, fmt::format("job {} is a program and ended for bad input", job.id));
  });
}

/// An acknowledged job is never lost, over restarts of the daemon and failed commits: what has not ended is
/// in memory, and everything is on disk.
void AcknowledgedIsKept(World& world, const Batch&, const char* name) {
  if (!world.ledger.Looks(64)) return;
  const auto& all = world.daemon.stored();
  auto at = all.begin();  // both are by id
  for (const auto& [id, job] : world.ledger.jobs) {
    if (!job.acknowledged) continue;
    while (at != all.end() && at->first < id) ++at;
    const bool stored = at != all.end() && at->first == id;
    const bool open = stored && !IsFinal(at->second.state);
    if (!stored || (open && world.daemon.reactor().state().FindJob(id) == nullptr)) {
      world.Break(name, fmt::format("job {} is lost", id));
    }
  }
}

/// An acknowledged cancel ends the job: nothing starts it again, and it is CANCELLED, or COMPLETED where it
/// had trained to its end.
void ACancelEndsTheJob(World& world, const Batch& batch, const char* name) {
  ForTouched(world, batch, [&](const JobRecord& job, const Ledger::Job& known) {
    if (!known.cancel_acknowledged || job.HoldsDevices()) return;
    if (job.state == JobState::kCancelled || job.state == JobState::kCompleted) return;
    world.Break(name, fmt::format("job {} was cancelled and is {}", job.id, NameOf(job.state)));
  });
}

/// A job that holds devices for longer than its time_limit, over all starts, ends, or is to stop at once, for
/// which AStopEndsTheRun has a bound of its own: within the two minutes for a checkpoint, twice the grace
/// time, and the time after which a node that does not answer is lost.
void TimeLimitsEndJobs(World& world, const Batch&, const char* name) {
  if (!world.ledger.Looks(8)) return;
  const Instant now = world.time.now().steady;
  for (const auto& [id, holding] : world.daemon.reactor().state().holdings()) {
    const JobRecord& job = *holding.job;
    const Ledger::Job& known = world.ledger.jobs[id];
    const bool at_once = job.run.stop != StopFor::kNothing && !job.run.checkpoint_first;
    if (job.time_limit_ms == 0 || job.by_hand || at_once) continue;
    const Instant over = known.held_since + std::chrono::milliseconds(job.time_limit_ms) - known.held;
    const Duration slack = minutes(2) + 2 * std::chrono::milliseconds(job.grace_ms) + seconds(60);
    if (now > std::max(over, world.daemon.disturbed()) + slack) {
      world.Break(name, fmt::format("job {} should have ended {} s ago", id,
                                    std::chrono::duration_cast<seconds>(now - over).count()));
    }
  }
}

/// A rank that was killed or failed ends its gang at once, not only when the others notice.
void AFailedRankEndsItsGang(World& world, const Batch& batch, const char* name) {
  ForTouched(world, batch, [&](const JobRecord& job, const Ledger::Job&) {
    if (!job.HoldsDevices() || job.run.stop != StopFor::kNothing) return;
    for (const auto& exit : job.run.exits) {
      if (exit.exit_code == 0 && exit.signal == 0) continue;
      world.Break(name, fmt::format("rank {} of job {} failed and the gang goes on", exit.rank, job.id));
    }
  });
}

/// A run that is to stop at once does, though the command may be lost: within twice the grace time, the time
/// after which a node that does not answer is lost, and as long again as a checkpoint may take, since streams
/// may break more than once.
void AStopEndsTheRun(World& world, const Batch&, const char* name) {
  if (!world.ledger.Looks(8)) return;
  const Instant now = world.time.now().steady;
  for (const auto& [id, holding] : world.daemon.reactor().state().holdings()) {
    const JobRecord& job = *holding.job;
    Ledger::Job& known = world.ledger.jobs[id];
    if (job.by_hand || job.run.stop == StopFor::kNothing || job.run.checkpoint_first) {
      known.stop_since.reset();
      continue;
    }
    if (!known.stop_since || known.stop_since->first != job.generation)
      known.stop_since = {job.generation, now};
    const Instant since = std::max(known.stop_since->second, world.daemon.disturbed());
    if (now > since + minutes(2) + 2 * std::chrono::milliseconds(job.grace_ms) + seconds(60)) {
      world.Break(name, fmt::format("job {} does not stop", id));
    }
  }
}

/// Somebody asked for the new start, or it is to have more.
bool GoesOnAtOnce(ReasonCode code) {
  return IsGivenBack(code) && code != ReasonCode::kPreempted && code != ReasonCode::kSpotNotice;
}

/// A retry waits 1 to 60 s, and does not start before; 1 s where the start had got further than the one
/// before.
void ARetryWaits(World& world, const Batch& batch, const char* name) {
  const Instant now = world.time.now().steady;
  std::set<JobId> resumed;  // to pause and resume a job ends its wait
  ForChanges(world, batch, [&](const AppendEvent& event, const JobRecord& job, const Ledger::Job& known) {
    if (event.from == JobState::kPaused) resumed.insert(job.id);
    if (event.to == JobState::kStarting && now < known.not_before && !resumed.contains(job.id)) {
      world.Break(name, fmt::format("job {} started before its wait was over", job.id));
    }
    if (event.to != JobState::kQueued || job.state != JobState::kQueued || GoesOnAtOnce(event.reason.code))
      return;
    if (event.from == JobState::kPaused) return;
    if (job.not_before < now + seconds(1) || job.not_before > now + seconds(60)) {
      world.Break(name, fmt::format("job {} goes back to the queue without a wait", job.id));
    }
    // One that comes in the same commit may have come after the end.
    const bool late = std::any_of(batch.actions.begin(), batch.actions.end(), [&job](const Action& action) {
      const auto* saved = std::get_if<SaveCheckpoint>(&action);
      return saved != nullptr && saved->job == job.id;
    });
    if (!late && known.newest_accepted == event.generation && job.not_before > now + seconds(1)) {
      world.Break(name, fmt::format("job {} wrote a checkpoint and waits as if it had not", job.id));
    }
  });
}

/// Only the latest start's ends count.
void OnlyTheLatestStartEnds(World& world, const Batch& batch, const char* name) {
  for (const auto& action : batch.actions) {
    const auto* end = std::get_if<AppendRankExit>(&action);
    if (end == nullptr) continue;
    const JobRecord* job = world.daemon.reactor().state().FindJob(end->run.job);
    // One that ends and starts again in one commit has two.
    if (job == nullptr || world.ledger.jobs[job->id].generation == end->run.generation) continue;
    if (job->generation == end->run.generation) continue;
    world.Break(name,
                fmt::format("an end of {} counts for generation {}", InWords(end->run), job->generation));
  }
}

/// A job is tried again as often as max_restarts says, not counting lost nodes, and not once more.
void RestartsAreCounted(World& world, const Batch& batch, const char* name) {
  ForChanges(world, batch, [&](const AppendEvent& event, const JobRecord& job, const Ledger::Job& known) {
    if (known.own_failures > job.max_restarts) {
      world.Break(name,
                  fmt::format("job {} failed {} times of {}", job.id, known.own_failures, job.max_restarts));
    }
    const bool no_progress = known.in_row + 1 >= kMostWithoutProgress;
    if (event.reason.code == ReasonCode::kRetriesExhausted && known.own_failures < job.max_restarts &&
        !no_progress) {
      world.Break(name, fmt::format("job {} was given up after {} restarts of {}", job.id, known.own_failures,
                                    job.max_restarts));
    }
  });
}

/// What can't work is not tried again.
void BadInputEndsTheJob(World& world, const Batch& batch, const char* name) {
  ForChanges(world, batch, [&](const AppendEvent& event, const JobRecord& job, const Ledger::Job& known) {
    if (known.bad_input && event.to == JobState::kQueued) {
      world.Break(name, fmt::format("job {} is tried again on bad input", job.id));
    }
  });
}

/// COMPLETED means that all ranks trained to the last step and ended with 0, and a job of which the daemon
/// knows that is COMPLETED. Of a program it knows that only where its ranks were not told to end.
void CompletedIsTrue(World& world, const Batch& batch, const char* name) {
  ForChanges(world, batch, [&](const AppendEvent& event, const JobRecord& job, const Ledger::Job&) {
    if (job.HoldsDevices() || event.to == JobState::kStarting) return;
    std::set<uint32_t> well;
    for (const auto& exit : job.run.exits) {
      if (exit.exit_code == 0 && exit.signal == 0) well.insert(exit.rank);
    }
    const bool told = std::any_of(job.run.exits.begin(), job.run.exits.end(),
                                  [](const RankExit& exit) { return exit.told; });
    const bool said_so = job.Trains() ? job.run.finished : !told;
    const bool all = well.size() == job.WorldSize() && said_so;
    const bool completed = job.state == JobState::kCompleted && job.reason.code != ReasonCode::kHalved;
    if (completed && (!all || !world.gangs.Finished({job.id, job.generation}))) {
      world.Break(name, fmt::format("job {} is COMPLETED and was not trained to its end", job.id));
    } else if (job.state != JobState::kCompleted && all && HoldsDevices(event.from)) {
      world.Break(name, fmt::format("job {} was trained to its end and is {}", job.id, NameOf(job.state)));
    }
  });
}

/// Only a gang that stands still is ended for it.
void OnlyWhatHangsIsStuck(World& world, const Batch& batch, const char* name) {
  ForTouched(world, batch, [&](const JobRecord& job, const Ledger::Job&) {
    const bool stuck =
        std::any_of(job.run.troubles.begin(), job.run.troubles.end(),
                    [](const Trouble& trouble) { return trouble.code == ReasonCode::kRankStuck; });
    if (stuck && !world.gangs.EverHung({job.id, job.generation})) {
      world.Break(name, fmt::format("job {} was called stuck while it trained", job.id));
    }
  });
}

/// A gang that has a part on the node fell apart, though its ranks there may never have started.
bool GangFellApart(const World& world, const Batch& batch, const NodeId& id) {
  if (world.gangs.BrokenOn(id)) return true;
  const auto& state = world.daemon.reactor().state();
  const auto has_part = [&](JobId known) {
    const JobRecord* job = state.FindJob(known);
    return job != nullptr && world.gangs.FellApart({known, job->generation}) &&
           std::any_of(job->run.parts.begin(), job->run.parts.end(),
                       [&id](const Part& part) { return part.node == id; });
  };
  return std::any_of(state.active().begin(), state.active().end(), has_part) ||
         std::any_of(batch.touched.begin(), batch.touched.end(), has_part);
}

/// A node is lost after 45 s of silence; earlier only where it is out of reach and a gang there fell apart.
/// What the daemon slept through does not count, but for a heartbeat.
void LostOnlyAfterSilence(World& world, const Batch& batch, const char* name) {
  constexpr auto kRounding = seconds(4);  // a heartbeat and a tick
  if (!batch.nodes_touched) return;
  for (const auto& [id, node] : world.daemon.reactor().state().nodes()) {
    if (node.state != NodeState::kLost || world.ledger.nodes[id] == NodeState::kLost) continue;
    const Duration silent = world.time.now().steady - world.ledger.heard[id];
    if (silent >= seconds(45) - kRounding ||
        (silent >= seconds(9) - kRounding && GangFellApart(world, batch, id)))
      continue;
    world.Break(name, fmt::format("node {} was called lost after {} s", id,
                                  std::chrono::duration_cast<seconds>(silent).count()));
  }
}

}  // namespace

const std::vector<Invariant>& JobInvariants() {
  static const std::vector<Invariant> rules = {
      {"one gang a device", OneGangADevice},
      {"no gang on foreign devices", NoGangOnForeignDevices},
      {"no gang out of reach", NoGangOutOfReach},
      {"a start is bounded", AStartIsBounded},
      {"a program is seen to run", AProgramIsSeenToRun},
      {"a gang is whole", AGangIsWhole},
      {"final is final", FinalIsFinal},
      {"each start is a generation", EachStartIsAGeneration},
      {"one generation commits", OneGenerationCommits},
      {"a start resumes", AStartResumes},
      {"a gang agrees", AGangAgrees},
      {"a program's exit codes are its own", AProgramsExitCodesAreItsOwn},
      {"acknowledged is kept", AcknowledgedIsKept},
      {"a cancel ends the job", ACancelEndsTheJob},
      {"time limits end jobs", TimeLimitsEndJobs},
      {"a failed rank ends its gang", AFailedRankEndsItsGang},
      {"a stop ends the run", AStopEndsTheRun},
      {"a retry waits", ARetryWaits},
      {"only the latest start ends", OnlyTheLatestStartEnds},
      {"restarts are counted", RestartsAreCounted},
      {"bad input ends the job", BadInputEndsTheJob},
      {"completed is true", CompletedIsTrue},
      {"only what hangs is stuck", OnlyWhatHangsIsStuck},
      {"lost only after silence", LostOnlyAfterSilence},
  };
  return rules;
}

}  // namespace imgd::sim
