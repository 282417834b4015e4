#include "server/core/reactor.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/core/explain.h"
#include "server/core/folders.h"
#include "server/core/job.h"

namespace imgd {
namespace {

/// "rn18[3]" has brackets, which shells take for a pattern: "rn18-3".
std::string FolderNameOf(std::string name) {
  std::replace(name.begin(), name.end(), '[', '-');
  std::erase(name, ']');
  return name;
}

std::string AllBegan(const JobRecord& job) {
  const uint32_t ranks = job.WorldSize();
  if (!job.Trains()) return ranks == 1 ? "its process runs" : fmt::format("all {} processes run", ranks);
  return ranks == 1 ? "the rank trains" : fmt::format("all {} ranks train", ranks);
}

}  // namespace

Reactor::Reactor(CoreSettings settings, std::string cluster_id)
    : settings_(settings), cluster_id_(std::move(cluster_id)) {}

void Reactor::SetSettings(CoreSettings settings) {
  settings.first_generation = settings_.first_generation;
  settings_ = std::move(settings);
  dirty_ = true;
}

void Reactor::Restore(std::vector<JobRecord> jobs, std::vector<NodeRecord> nodes, JobId next_job, Now now,
                      std::map<std::string, Usage> usage, std::vector<SweepRecord> sweeps,
                      std::map<std::string, Account> accounts) {
  for (auto& job : jobs) {
    job.run.since = job.run.stop_since = now.steady;
    RestoreHeld(job, now);
    const int64_t left_us = job.retry_at.micros - now.wall.micros;
    // Bounded, since the wall clock may have been set meanwhile.
    const int64_t most_us = std::chrono::microseconds(std::chrono::seconds(60)).count();
    if (left_us > 0) job.not_before = now.steady + std::chrono::microseconds(std::min(left_us, most_us));
    if (job.HoldsDevices()) pending_.insert(job.id);
    if (job.by_hand) job.by_hand->silence = Duration::zero();
  }
  // When it was heard last is stored with each change alone: what was there then may have been heard until
  // now.
  for (auto& node : nodes) {
    if (node.state == NodeState::kReady) node.last_heartbeat = now.wall;
  }
  state_.Restore(std::move(jobs), std::move(nodes), std::move(usage), std::move(sweeps), std::move(accounts));
  next_job_ = next_job;
  last_tick_ = now.steady;
}

void Reactor::Commit() {
  state_.Commit();
  for (const JobId id : std::exchange(concluded_, {})) {
    const auto watched = watched_.find(id);
    if (watched != watched_.end() && ActiveRun({id, watched->second.generation}) == nullptr)
      watched_.erase(watched);
  }
}

void Reactor::Rollback() {
  state_.Rollback();
  concluded_.clear();
  for (const auto& [id, node] : state_.nodes()) {
    NodeRecord& edited = state_.EditUnstored(id);
    edited.silence = Duration::zero();
    edited.session = 0;
    edited.stale.clear();
    edited.foreign.clear();
    edited.problems.clear();
    edited.notice.reset();
  }
  // They may well have been heard in what is undone.
  for (const JobId id : state_.by_hand()) state_.EditUnstored(id).by_hand->silence = Duration::zero();
  kept_.clear();
  passed_over_.clear();
  reserved_ = std::make_shared<const Reservations>();
  pending_.clear();
  elsewhere_.clear();
  news_.clear();
  // What was only remembered as to be looked at has to be looked at again.
  pending_.insert(state_.active().begin(), state_.active().end());
  dirty_ = true;
}

JobId Reactor::TakeJobId() {
  const JobId id = next_job_;
  next_job_ = JobId(id.value() + 1);
  return id;
}

JobRecord NewJob(const Submission& submission, JobId id, const std::string& cluster_id, WallTime now) {
  return {.id = id,
          .kind = submission.kind,
          .per_node = submission.per_node,
          .name = submission.name,
          .owner = submission.owner,
          .project = submission.project,
          .priority = submission.priority,
          .nodes = submission.nodes,
          .max_nodes = submission.max_nodes,
          .resize_interval_ms = submission.resize_interval_ms,
          .ranks_per_node = submission.ranks_per_node,
          .needs = submission.needs,
          .grace_ms = submission.grace_ms,
          .max_restarts = submission.max_restarts,
          .time_limit_ms = submission.time_limit_ms,
          .preemptible = submission.preemptible,
          // As it was checked against the nodes' shared folders.
          .checkpoint_dir = NormalPath(fmt::format("{}/{}-{}-{}", submission.checkpoint_parent,
                                                   FolderNameOf(submission.name), cluster_id, id)),
          .state = JobState::kQueued,
          .reason = {ReasonCode::kSubmitted,
                     submission.rerun_of == JobId()
                         ? "submitted"
                         : fmt::format("submitted, from the file of job {}", submission.rerun_of)},
          .submitted = now,
          .rerun_of = submission.rerun_of,
          .after = submission.after,
          .not_before_wall = submission.not_before > now ? submission.not_before : WallTime{},
          .sweep_settings = submission.sweep_settings};
}

JobId Reactor::Add(const Submission& submission, JobId sweep, Now now, Actions& out) {
  const JobId id = TakeJobId();
  JobRecord job = NewJob(submission, id, cluster_id_, now.wall);
  job.sweep = sweep;
  out.push_back(AppendEvent{.job = id,
                            .first = true,
                            .reason = job.reason,
                            .actor = fmt::format("user:{}", submission.owner),
                            .time = now.wall});
  state_.AddJob(std::move(job));
  dirty_ = true;
  return id;
}

JobId Reactor::OnSubmit(const Submission& submission, Now now, Actions& out) {
  return Add(submission, JobId(), now, out);
}

Status Reactor::OnCancel(JobId id, bool checkpoint_first, const std::string& actor, Now now, Actions& out) {
  const JobRecord* known = state_.FindJob(id);
  if (known == nullptr) return Fail(ErrorCode::kNotFound, "there is no job {}", id);
  if (known->state == JobState::kCancelled) return {};
  if (IsFinal(known->state)) {
    return Fail(ErrorCode::kFailedPrecondition, "job {} cannot be cancelled: it has ended already ({})", id,
                NameOf(known->state));
  }
  if (known->by_hand) {
    return tl::unexpected(
        Error{.code = ErrorCode::kFailedPrecondition,
              .message = fmt::format("job {} was {}; imgd has no part in it and can't end it", id,
                                     ExplainByHand(*known->by_hand)),
              .hint = "end it there, with Ctrl-C, kill or scancel; it then reports its end"});
  }
  JobRecord& job = state_.EditJob(id);
  if (!job.HoldsDevices()) {
    auto event = ChangeState(job, JobState::kCancelled,
                             {ReasonCode::kCancelledByUser, fmt::format("cancelled by {}", actor)},
                             fmt::format("user:{}", actor), now);
    if (event) out.push_back(std::move(*event));
    state_.Changed(id);
    dirty_ = true;
    return {};
  }
  // A second, plain cancel does not wait for the checkpoint of the first.
  const StopFor before = job.run.stop;
  const bool first = before != StopFor::kCancel;
  job.run.checkpoint_first = checkpoint_first && job.Trains() && (first || job.run.checkpoint_first) &&
                             job.run.stop != StopFor::kRetry;
  if (first) job.run.stop_actor = actor;
  if (before == StopFor::kNothing) job.run.stop_since = now.steady;
  GiveUpGrowth(id, now);
  job.run.stop = StopFor::kCancel;
  auto event =
      ChangeState(job, job.state,
                  {ReasonCode::kCancelledByUser,
                   fmt::format("{} asked for the end{}; the ranks are being stopped", job.run.stop_actor,
                               job.run.checkpoint_first ? " after a checkpoint" : "")},
                  fmt::format("user:{}", job.run.stop_actor), now);
  // Else the last that its history says meanwhile would be that it goes on later.
  if (event && first && before != StopFor::kNothing) out.push_back(std::move(*event));
  pending_.insert(id);
  Drain(now, out);
  return {};
}

const JobRecord* Reactor::ActiveRun(RunKey run) const {
  const JobRecord* job = state_.FindJob(run.job);
  return job != nullptr && job->IsActive() && job->generation == run.generation ? job : nullptr;
}

void Reactor::AddTrouble(JobId id, ReasonCode code, std::string text, const NodeId& node) {
  state_.EditJob(id).run.troubles.push_back({code, std::move(text), node});
  pending_.insert(id);
}

void Reactor::Drain(Now now, Actions& out) {
  while (!pending_.empty() || SettleWaits(now, out)) {
    if (pending_.empty()) continue;
    const JobId id = *pending_.begin();
    pending_.erase(pending_.begin());
    if (state_.active().contains(id)) Advance(id, now, out);
  }
}

void Reactor::Advance(JobId id, Now now, Actions& out) {
  JobRecord& job = state_.EditJob(id);
  Run& run = job.run;
  if (CollectiveBroke(job)) {
    // A silent node whose gang's collectives broke is not just hard to reach.
    for (const auto& part : run.parts) {
      const NodeRecord* node = state_.FindNode(part.node);
      // What it said since may not have been stored.
      if (!part.Over() && node != nullptr && node->state == NodeState::kUnreachable &&
          node->silence > 3 * settings_.heartbeat) {
        LoseNode(part.node, " and the gang's collectives broke", now, out);
      }
    }
  }
  if (run.stop == StopFor::kNothing) {
    if (MustStop(run)) {
      BeginStop(job, now);
    } else if (job.state == JobState::kStarting && run.started.size() == job.WorldSize()) {
      auto event = ChangeState(job, JobState::kRunning, {ReasonCode::kAllRanksStarted, AllBegan(job)},
                               "scheduler", now);
      if (event) out.push_back(std::move(*event));
      state_.Changed(id);
      if (job.IsElastic()) dirty_ = true;  // when it may grow is to be noted
    }
  }
  // What can't save any more is not waited for.
  const bool patient = run.stop == StopFor::kGrow || run.stop == StopFor::kNotice;
  if (patient && FailedOfItself(run)) run.checkpoint_first = false;
  SyncParts(id, now, out);
  if (!AllOver(run)) return;
  if (run.gone_since == Instant{}) run.gone_since = now.steady;
  if (IsExplained(job) || now.steady >= run.gone_since + settings_.settle) Conclude(id, now, out);
}

void Reactor::BeginStop(JobRecord& job, Now now) {
  job.run.stop = StopFor::kRetry;
  job.run.stop_since = now.steady;
  // The state's own code stays: the verdict, and the cause in it, comes when every rank's end is known.
  job.reason.text = job.run.troubles.empty()
                        ? "a rank ended; the others are being stopped"
                        : fmt::format("{}; the ranks are being stopped", job.run.troubles.front().text);
}

void Reactor::SyncParts(JobId id, Now now, Actions& out) {
  JobRecord& job = state_.EditJob(id);
  for (size_t i = 0; i < job.run.parts.size(); ++i) {
    Part& part = job.run.parts[i];
    if (part.Over()) continue;
    Command wanted = Command::kNothing;
    if (job.run.stop != StopFor::kNothing) {
      if (!part.contacted) {
        part.phase = RunPhase::kGone;  // it never heard of the run
        continue;
      }
      wanted = job.run.checkpoint_first ? Command::kStopAfterCheckpoint : Command::kStop;
    } else if (job.run.master_port == 0) {
      if (i == 0) wanted = Command::kPrepare;
    } else if (part.phase == RunPhase::kUnheard || part.phase == RunPhase::kPrepared) {
      wanted = Command::kStart;
    }
    const NodeRecord* node = state_.FindNode(part.node);
    if (wanted == Command::kNothing || node == nullptr || !node->Connected()) continue;
    // A stop for another reason may leave less time than the one before.
    const bool sooner = wanted == Command::kStop && now.steady + GraceFor(job, now) < part.stop_by;
    if (wanted == part.sent && !sooner) continue;
    SendTo(job, i, wanted, now, out);
  }
}

void Reactor::SendTo(JobRecord& job, size_t index, Command command, Now now, Actions& out) {
  Part& part = job.run.parts[index];
  const RunKey run{job.id, job.generation};
  part.sent = command;
  switch (command) {
    case Command::kNothing:
      return;
    case Command::kPrepare:
      part.contacted = true;
      out.push_back(SendPrepare{part.node, run});
      return;
    case Command::kStopAfterCheckpoint:
    case Command::kStop: {
      const std::chrono::milliseconds grace = GraceFor(job, now);
      part.stop_by = now.steady + grace;
      out.push_back(SendStop{part.node, run, command == Command::kStopAfterCheckpoint, grace.count()});
      return;
    }
    case Command::kStart:
      break;
  }
  part.contacted = true;
  SendStart start{.node = part.node,
                  .run = run,
                  .job_name = job.name,
                  .kind = job.kind,
                  .first_rank = part.first_rank,
                  .ranks = part.Ranks(),
                  .devices = part.devices,
                  .world_size = job.WorldSize(),
                  .node_count = job.NodesNow(),
                  .node_rank = static_cast<uint32_t>(index),
                  .master_address = job.run.master_address,
                  .master_port = job.run.master_port,
                  .checkpoint_dir = job.checkpoint_dir,
                  .last_writer = job.last_writer,
                  .grace_ms = job.grace_ms};
  for (const auto& checkpoint : job.checkpoints) start.resume_from.push_back(checkpoint.path);
  out.push_back(std::move(start));
}

void Reactor::Conclude(JobId id, Now now, Actions& out) {
  JobRecord& job = state_.EditJob(id);
  for (const auto& part : job.run.parts) {
    const NodeRecord* node = state_.FindNode(part.node);
    if (!part.lost && part.contacted && node != nullptr && node->Connected()) {
      out.push_back(SendForget{part.node, {id, job.generation}});
    }
  }
  Charge(id, now);
  job.held_ms += job.run.charged_ms;
  // Nobody knows whether a program got anywhere: one that ran for so long did.
  const Duration held = now.steady - job.run.held_since;
  if (!job.Trains() && job.state != JobState::kStarting && held >= kRanForLong) job.run.progressed = true;
  Verdict verdict = Judge(job, LastStepOf({id, job.generation}));
  if (job.run.progressed) {
    job.crashes = {};
    job.given_back_in_row = 0;
    job.failures_in_row = 0;
  }
  if (verdict.crashes) job.crashes = *verdict.crashes;
  const std::vector<NodeId> blamed = BlamedByGang(job, verdict);
  verdict.reason.text += JudgeNodes(job, verdict, now, out);
  verdict.reason.text += Blame(job, blamed, verdict.reason.text, now, out);
  auto event = ChangeState(job, verdict.to, verdict.reason, verdict.actor, now);
  if (!IsFinal(verdict.to) && job.run.master_port != 0) job.last_writer = job.generation;
  if (job.run.stop == StopFor::kMove)
    for (const auto& part : job.run.parts) job.avoid.insert(part.node);
  if (verdict.to == JobState::kQueued && BacksOff(job.run.stop)) Requeue(job, verdict.counts, now);
  if (event) out.push_back(std::move(*event));
  state_.Changed(id);
  concluded_.push_back(id);
  dirty_ = true;
  TryElsewhere(id, blamed);
}

void Reactor::Requeue(JobRecord& job, bool counts, Now now) {
  // That its devices were asked back says nothing of how often it fails, and never costs it its place.
  const bool gave_back = GivesBack(job.run.stop);
  if (gave_back) {
    ++job.given_back_in_row;
  } else {
    ++job.restarts;
    ++job.failures_in_row;
  }
  if (counts) ++job.failures;
  const Duration wait = gave_back ? BackoffAfter(std::min(job.given_back_in_row, kLongestInPlace))
                                  : BackoffAfter(job.failures_in_row);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wait).count();
  job.not_before = now.steady + wait;
  job.retry_at = {now.wall.micros + std::chrono::duration_cast<std::chrono::microseconds>(wait).count()};
  job.reason = {
      ReasonCode::kBackoff,
      fmt::format("waits {} s before it starts again ({}), {}: {}", seconds,
                  counts ? fmt::format("failure {} of at most {}", job.failures, job.max_restarts)
                         : "not counted against max_restarts",
                  KeepsPlace(job) ? "its place in the queue is kept" : "others may go before it meanwhile",
                  job.reason.text)};
}

}  // namespace imgd
