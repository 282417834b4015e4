#include <fmt/format.h>

#include <algorithm>

#include "server/core/explain.h"
#include "server/core/job.h"
#include "server/core/reactor.h"

/// The reactor's events that come from nodes.
namespace imgd {
namespace {

/// Whether it is told that ranks are gone without a word. Where their devices were asked back they may never
/// have begun.
bool AreMissed(StopFor stop, bool had_ranks) {
  return stop == StopFor::kNothing || (GivesBack(stop) && had_ranks);
}

}  // namespace

Status Reactor::OnAgentHello(const NodeHello& hello, uint64_t session, Now now, Actions& out) {
  const NodeRecord* known = state_.FindNode(hello.node);
  if (known != nullptr && known->Connected() && known->agent_id != hello.agent_id) {
    return Fail(ErrorCode::kAlreadyExists,
                "another agent is connected as node {} (its address is {}); give each node a name of its own",
                hello.node, known->address);
  }
  // One process after the other is a restart; two at a time are two machines with a copy of one's identity.
  if (known != nullptr && known->Connected() && known->incarnation != hello.incarnation &&
      !known->incarnation.empty() && known->silence <= 2 * settings_.heartbeat) {
    return Fail(
        ErrorCode::kAlreadyExists,
        "an agent with this identity is connected as node {} (its address is {}) and answers; where this "
        "one's state folder is a copy of that one's, remove it and let the node join under a name of its own",
        hello.node, known->address);
  }
  NoteHello(hello, now, out);
  if (known != nullptr &&
      (known->devices.size() != hello.devices.size() || known->price_per_hour != hello.price_per_hour))
    ChargeOn(*known, now);
  if (known == nullptr) state_.AddNode({.id = hello.node, .joined = now.wall});
  NodeRecord& node = state_.EditNode(hello.node);
  const bool restarted = !node.incarnation.empty() && node.incarnation != hello.incarnation;
  node.incarnation = hello.incarnation;
  if (node.devices != hello.devices) state_.SetDevices(hello.node, hello.devices);
  node.agent_id = hello.agent_id;
  node.agent_version = hello.agent_version;
  node.address = hello.address;
  node.filesystem_id = hello.filesystem_id;
  node.shared_folders = hello.shared_folders;
  node.labels = hello.labels;
  node.price_per_hour = hello.price_per_hour;
  node.metrics_address = hello.metrics_address;
  node.metrics_relayed = hello.metrics_relayed;
  state_.NoteKind(node);
  node.session = session;
  node.state = NodeState::kReady;
  node.silence = Duration::zero();
  node.last_heartbeat = now.wall;
  node.stale.clear();
  node.foreign.clear();
  dirty_ = true;
  Problems problems = hello.health.problems;
  if (auto skew = SkewOf(hello.health)) problems[ProblemKind::kClock] = std::move(*skew);
  NoteHealth(hello.node, std::move(problems), now, out);
  NoteNotice(hello.node, hello.health.notice, now, out);

  for (const auto& report : hello.runs) ApplyReport(hello.node, report, now, out);
  ReconcileUnlisted(hello, restarted);
  for (const JobId id : state_.active()) {
    if (PartOnNode(state_.FindJob(id)->run, hello.node) == nullptr) continue;
    PartOnNode(state_.EditJob(id).run, hello.node)->sent = Command::kNothing;
    pending_.insert(id);
  }
  Drain(now, out);
  return {};
}

void Reactor::NoteHello(const NodeHello& hello, Now now, Actions& out) {
  const std::string devices = CountText(hello.devices.size(), "device");
  const std::string actor = fmt::format("agent:{}", hello.node);
  const NodeRecord* known = state_.FindNode(hello.node);
  if (known == nullptr) {
    NoteNode(hello.node, ReasonCode::kNodeJoined,
             fmt::format("node {} has joined with {}", hello.node, devices), actor, now, out);
    return;
  }
  const bool was_away = known->state != NodeState::kReady;
  const bool other = known->devices.size() != hello.devices.size();
  if (!was_away && !other) return;
  NoteNode(hello.node, ReasonCode::kNodeHeard,
           fmt::format("node {} is back with {}{}", hello.node, devices,
                       other ? fmt::format("; it had {}", known->devices.size()) : ""),
           actor, now, out);
}

void Reactor::ReconcileUnlisted(const NodeHello& hello, bool restarted) {
  for (const JobId id : state_.active()) {
    const JobRecord& job = *state_.FindJob(id);
    const Part* part = PartOnNode(job.run, hello.node);
    if (part == nullptr || part->Over()) continue;
    const RunKey run{id, job.generation};
    const bool listed = std::any_of(hello.runs.begin(), hello.runs.end(), [&](const RunReport& report) {
      return report.run == run && !IsForeign(report);
    });
    if (listed) continue;
    JobRecord& edited = state_.EditJob(id);
    NoteUnlisted(edited, *PartOnNode(edited.run, hello.node), restarted);
    pending_.insert(id);
  }
}

void Reactor::NoteUnlisted(JobRecord& job, Part& part, bool restarted) {
  if (job.run.stop == StopFor::kNothing && job.generation < settings_.first_generation) {
    // Since the backup it may have run and ended; it is not begun a second time under its number.
    AddTrouble(job.id, ReasonCode::kRestored,
               fmt::format("imgd was restored from a backup, and node {} does not have the ranks that it had "
                           "then",
                           part.node));
    part.phase = RunPhase::kGone;
    return;
  }
  const bool had_ranks = part.phase == RunPhase::kRunning || part.phase == RunPhase::kStopping ||
                         job.state == JobState::kRunning;
  const bool had_port =
      part.phase == RunPhase::kPrepared || (part.first_rank == 0 && job.run.master_port != 0);
  if (job.run.stop != StopFor::kNothing || had_ranks) {
    // Its machine was restarted, which is no rank's doing.
    if (AreMissed(job.run.stop, had_ranks)) {
      AddTrouble(job.id, ReasonCode::kNodeLost,
                 fmt::format("node {} came back without the ranks that it ran", part.node));
    }
    part.phase = RunPhase::kGone;
    return;
  }
  if (restarted && part.sent == Command::kStart) {
    // It may have started them, and what it said of that may not have been stored.
    AddTrouble(
        job.id, ReasonCode::kStartFailed,
        fmt::format("node {} restarted when it had been told to start its ranks, and knows nothing of them",
                    part.node));
    part.phase = RunPhase::kGone;
    return;
  }
  // It never started them: the command is simply sent again, unless the port that others may know is gone.
  part.phase = RunPhase::kUnheard;
  if (!had_port) return;
  const bool others_know =
      std::any_of(job.run.parts.begin(), job.run.parts.end(),
                  [&part](const Part& other) { return other.node != part.node && other.contacted; });
  if (others_know) {
    AddTrouble(job.id, ReasonCode::kStartFailed,
               fmt::format("node {} restarted and lost the port of the rendezvous", part.node));
    part.phase = RunPhase::kGone;
  } else {
    job.run.master_port = 0;
    job.run.master_address.clear();
  }
}

void Reactor::OnAgentGone(const NodeId& id, uint64_t session) {
  const NodeRecord* node = state_.FindNode(id);
  if (node == nullptr || node->session != session) return;
  state_.EditUnstored(id).session = 0;
  dirty_ = true;
}

void Reactor::OnHeard(const NodeId& id, Now now) {
  NodeRecord* const node = state_.FindUnstored(id);
  if (node == nullptr || node->state == NodeState::kLost) return;
  node->silence = Duration::zero();
  node->last_heartbeat = now.wall;
  if (node->state == NodeState::kUnreachable) {
    state_.EditNode(id).state = NodeState::kReady;
    news_.push_back({.node = id,
                     .reason = {ReasonCode::kNodeHeard, fmt::format("node {} is heard again", id)},
                     .actor = fmt::format("agent:{}", id),
                     .time = now.wall});
    dirty_ = true;
  }
}

std::optional<std::string> Reactor::SkewOf(const Health& health) const {
  if (settings_.most_skew == Duration::zero() || !health.clock_ahead) return std::nullopt;
  const Duration ahead = *health.clock_ahead;
  if (std::chrono::abs(ahead) <= settings_.most_skew) return std::nullopt;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::abs(ahead)).count();
  return fmt::format("has a clock that is {} s {} imgd's", seconds,
                     ahead > Duration::zero() ? "ahead of" : "behind");
}

void Reactor::OnHealth(const NodeId& id, const Health& health, Now now, Actions& out) {
  const NodeRecord* known = state_.FindNode(id);
  if (known == nullptr || !known->Connected()) return;
  Problems problems = health.problems;
  const auto skew = SkewOf(health);
  NoteSkew(id, skew.has_value(), now);
  // What is known to be skewed stays so until one heartbeat is not.
  constexpr uint32_t kEnough = 3;
  if (skew && (known->skewed >= kEnough || known->problems.contains(ProblemKind::kClock)))
    problems[ProblemKind::kClock] = *skew;
  NoteHealth(id, std::move(problems), now, out);
  NoteNotice(id, health.notice, now, out);
  Drain(now, out);
}

/// Heartbeats may have waited on their way, and then come all at once: those count as one.
void Reactor::NoteSkew(const NodeId& id, bool skewed, Now now) {
  NodeRecord& node = state_.EditUnstored(id);
  if (!skewed) {
    node.skewed = 0;
  } else if (now.steady >= node.skewed_at + settings_.heartbeat / 2) {
    ++node.skewed;
    node.skewed_at = now.steady;
  }
}

void Reactor::NoteHealth(const NodeId& id, Problems problems, Now now, Actions& out) {
  const Problems before = state_.FindNode(id)->problems;
  if (problems == before) return;
  NodeRecord& node = state_.EditUnstored(id);
  node.problems = std::move(problems);
  const auto same_kind = [](const auto& a, const auto& b) { return a.first == b.first; };
  // The figures of a problem that goes on are no news.
  if (std::equal(before.begin(), before.end(), node.problems.begin(), node.problems.end(), same_kind)) return;
  dirty_ = true;
  const bool well = node.problems.empty();
  NoteNode(id, well ? ReasonCode::kNodeWell : ReasonCode::kNodeSick,
           well ? fmt::format("node {} is well again", id)
                : fmt::format("node {} {}; nothing new is placed there", id, ExplainProblems(node)),
           fmt::format("agent:{}", id), now, out);
}

void Reactor::OnRunPrepared(const NodeId& node, RunKey run, const std::string& address, uint32_t port,
                            const std::string& error, Now now, Actions& out) {
  const JobRecord* job = ActiveRun(run);
  const Part* part = job == nullptr ? nullptr : PartOnNode(job->run, node);
  if (part == nullptr || part->lost) {
    ++stale_reports_;
    return;
  }
  if (job->state != JobState::kStarting || job->run.stop != StopFor::kNothing || part->first_rank != 0)
    return;
  if (!error.empty() || port == 0) {
    AddTrouble(run.job, ReasonCode::kStartFailed,
               fmt::format("node {} has no port for the rendezvous: {}", node,
                           error.empty() ? "the agent named none" : error),
               node);
  } else {
    JobRecord& edited = state_.EditJob(run.job);
    edited.run.master_address = address;
    edited.run.master_port = port;
    pending_.insert(run.job);
  }
  Drain(now, out);
}

void Reactor::OnRunStatus(const NodeId& node, const RunReport& report, Now now, Actions& out) {
  ApplyReport(node, report, now, out);
  Drain(now, out);
}

void Reactor::ApplyReport(const NodeId& node, const RunReport& report, Now now, Actions& out) {
  if (IsForeign(report)) {
    NoteForeign(node, report);
    return;
  }
  const JobRecord* job = ActiveRun(report.run);
  const Part* known = job == nullptr ? nullptr : PartOnNode(job->run, node);
  if (known == nullptr || known->lost) {
    RefuseRun(node, report, out);
    return;
  }
  if (known->phase == RunPhase::kGone) return;  // said before; what is gone does not come back
  NoteExits(node, report, now, out);
  if (!report.start_error.empty()) {
    AddTrouble(report.run.job, ReasonCode::kStartFailed,
               fmt::format("node {} could not start the ranks: {}", node, report.start_error), node);
  }
  if (report.phase == RunPhase::kGone) NoteGone(node, report.run);
  Part& part = *PartOnNode(state_.EditJob(report.run.job).run, node);
  part.phase = report.phase;
  part.contacted = true;
  NoteProcesses(report.run.job, part);
  pending_.insert(report.run.job);
}

void Reactor::NoteExits(const NodeId& node, const RunReport& report, Now now, Actions& out) {
  JobRecord& job = state_.EditJob(report.run.job);
  for (RankExit exit : report.exits) {
    const auto* part = PartOfRank(job.run, exit.rank);
    const bool known = std::any_of(job.run.exits.begin(), job.run.exits.end(),
                                   [&exit](const RankExit& other) { return other.rank == exit.rank; });
    if (known || part == nullptr || part->node != node) continue;
    // A trainer says by its exit code, and by itself, how it ended.
    if (job.Trains()) exit.told = false;
    exit.by_us = EndedByUs(job, exit, now.steady);
    NoteWhere(report.run, exit);
    out.push_back(AppendRankExit{report.run, exit, now.wall});
    job.run.exits.push_back(std::move(exit));
  }
}

/// A program that is no trainer says nothing itself: it has begun when its process runs, or has run.
void Reactor::NoteProcesses(JobId id, const Part& part) {
  JobRecord& job = state_.EditJob(id);
  if (job.Trains()) return;
  for (uint32_t rank = part.first_rank; part.Has(rank); ++rank) {
    const bool ended = std::any_of(job.run.exits.begin(), job.run.exits.end(),
                                   [rank](const RankExit& exit) { return exit.rank == rank; });
    if (ended || part.phase == RunPhase::kRunning) job.run.started.insert(rank);
  }
}

void Reactor::NoteGone(const NodeId& node, RunKey key) {
  JobRecord& job = state_.EditJob(key.job);
  const Part& part = *PartOnNode(job.run, node);
  const auto ended = std::count_if(job.run.exits.begin(), job.run.exits.end(), [&](const RankExit& exit) {
    return PartOfRank(job.run, exit.rank) == &part;
  });
  const bool had_ranks = part.phase == RunPhase::kRunning || part.phase == RunPhase::kStopping;
  if (ended < part.Ranks() && AreMissed(job.run.stop, had_ranks) && job.run.troubles.empty()) {
    // Its agent tells of every end, unless the machine went down under the ranks.
    AddTrouble(
        key.job, ReasonCode::kNodeLost,
        fmt::format("ranks on node {} are gone and left no exit status, as when a machine restarts", node));
  }
}

bool Reactor::IsForeign(const RunReport& report) const {
  return !report.cluster.empty() && report.cluster != cluster_id_;
}

void Reactor::NoteForeign(const NodeId& node, const RunReport& report) {
  // Its job's number means another job here. What matters is that its devices are not free.
  auto& foreign = state_.EditUnstored(node).foreign;
  const ForeignRun key{report.cluster, report.run};
  if (report.phase == RunPhase::kGone) {
    foreign.erase(key);
  } else {
    foreign[key] = report.devices;
  }
  dirty_ = true;
}

void Reactor::RefuseRun(const NodeId& node, const RunReport& report, Actions& out) {
  if (report.phase == RunPhase::kGone) {
    if (state_.FindNode(node)->stale.contains(report.run)) {
      state_.EditUnstored(node).stale.erase(report.run);
      dirty_ = true;
    }
    out.push_back(SendForget{node, report.run});
    return;
  }
  ++stale_reports_;
  if (state_.FindNode(node)->stale.contains(report.run)) return;  // it was told already
  state_.EditUnstored(node).stale.insert(report.run);
  dirty_ = true;
  const JobRecord* job = state_.FindJob(report.run.job);
  out.push_back(SendStop{node, report.run, false, job != nullptr ? job->grace_ms : 10'000});
}

void Reactor::LoseNode(const NodeId& id, std::string_view besides, Now now, Actions& out) {
  NodeRecord& node = state_.EditNode(id);
  if (node.state == NodeState::kLost) return;
  node.state = NodeState::kLost;
  dirty_ = true;
  if (node.Connected()) {
    out.push_back(
        Disconnect{id, node.session,
                   Error{.code = ErrorCode::kUnavailable,
                         .message = fmt::format("node {} was out of reach for too long; join again", id)}});
    node.session = 0;
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(node.silence).count();
  // One that was to go is not missed.
  NoteNode(id, node.notice ? ReasonCode::kSpotNotice : ReasonCode::kNodeLost,
           node.notice ? fmt::format("node {} {}", id, ExplainNotice(node))
                       : fmt::format("node {} is lost: it was out of reach for {} s{}", id, seconds, besides),
           "scheduler", now, out);
  for (const JobId job_id : state_.active()) {
    const Part* known = PartOnNode(state_.FindJob(job_id)->run, id);
    if (known == nullptr || known->Over()) continue;
    PartOnNode(state_.EditJob(job_id).run, id)->lost = true;
    AddTrouble(job_id, ReasonCode::kNodeLost,
               fmt::format("node {} is lost: it was out of reach for {} s{}", id, seconds, besides));
  }
}

void Reactor::OnTick(Now now, Actions& out) {
  const Duration passed = std::min(now.steady - last_tick_, settings_.heartbeat);
  last_tick_ = now.steady;
  JudgePulses(now, out);
  CountSilence(passed, now, out);
  CountSilenceByHand(passed, now, out);
  for (const auto& [id, holding] : state_.holdings()) CheckTimeouts(*holding.job, now);
  ChargeAll(now);
  if (ForgettingDue(now)) {
    ForgetOld(now.wall);
    ForgetLostNodes(now, out);
  }
  LetGoInTime(now.wall);
  Drain(now, out);
  if (BackoffDue(now) || now.steady >= next_growth_) dirty_ = true;
}

void Reactor::CountSilence(Duration passed, Now now, Actions& out) {
  const Duration noticed = std::min(3 * settings_.heartbeat, settings_.lost_after);
  std::vector<NodeId> silent;
  state_.ForNodesUnstored([&](NodeRecord& node) {
    if (node.state == NodeState::kLost) return;
    node.silence += passed;
    if (node.silence >= noticed) silent.push_back(node.id);
  });
  for (const auto& id : silent) {
    const NodeRecord& node = *state_.FindNode(id);
    const bool silent_now = node.silence > 3 * settings_.heartbeat;
    const bool silent_before = node.silence - passed > 3 * settings_.heartbeat;
    if (node.silence >= settings_.lost_after) {
      LoseNode(id, "", now, out);
    } else if (node.state == NodeState::kReady && silent_now) {
      state_.EditNode(id).state = NodeState::kUnreachable;
      NoteNode(id, ReasonCode::kNodeSilent,
               fmt::format(
                   "node {} is out of reach: three heartbeats are missing; nothing new is placed there", id),
               "scheduler", now, out);
      dirty_ = true;
    }
    // Whether a gang whose collectives broke still waits for it depends on this.
    if (silent_now && !silent_before) pending_.insert(state_.active().begin(), state_.active().end());
  }
}

void Reactor::CheckTimeLimit(const JobRecord& known, Now now) {
  const bool over = known.run.stop == StopFor::kNothing && TimeLeft(known, now.steady) == Duration::zero();
  // A last checkpoint, also one that a cancel asked for.
  const bool late = known.run.checkpoint_first && !GivesBack(known.run.stop) &&
                    now.steady >= known.run.stop_since + TimeForLastCheckpoint(known);
  if (!over && !late) return;
  JobRecord& job = state_.EditJob(known.id);
  job.run.checkpoint_first = over && job.state == JobState::kRunning && job.Trains();
  if (over) {
    job.run.stop = StopFor::kTimeLimit;
    job.run.stop_since = now.steady;
    job.reason.text = "its time_limit is over; the ranks are being stopped";
  }
  pending_.insert(job.id);
}

void Reactor::CheckTimeouts(const JobRecord& job, Now now) {
  if (job.run.gone_since != Instant{}) pending_.insert(job.id);  // it waits for its last reports
  CheckTimeLimit(job, now);
  if (job.state != JobState::kStarting || job.run.stop != StopFor::kNothing) return;
  const Duration passed = now.steady - job.run.since;
  if (job.run.master_port == 0 && passed >= settings_.prepare_timeout) {
    const NodeId& node = job.run.parts.front().node;
    // One that can't be reached is not to blame for its silence.
    const bool is_heard = state_.FindNode(node)->state == NodeState::kReady;
    AddTrouble(
        job.id, ReasonCode::kStartFailed,
        fmt::format("node {} named no port for the rendezvous within {} s", node,
                    std::chrono::duration_cast<std::chrono::seconds>(settings_.prepare_timeout).count()),
        is_heard ? node : NodeId());
  } else if (passed >= settings_.start_timeout) {
    uint32_t missing = 0;
    while (job.run.started.contains(missing)) ++missing;
    const Part* part = PartOfRank(job.run, missing);
    AddTrouble(
        job.id, ReasonCode::kStartFailed,
        fmt::format("rank {} on node {} did not begin{} within {} s (start_timeout in imgd.yaml)", missing,
                    part != nullptr ? part->node.name() : "?", job.Trains() ? " to train" : "",
                    std::chrono::duration_cast<std::chrono::seconds>(settings_.start_timeout).count()));
  }
}

}  // namespace imgd
