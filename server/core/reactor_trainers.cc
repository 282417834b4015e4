#include <fmt/format.h>

#include <algorithm>

#include "server/core/explain.h"
#include "server/core/job.h"
#include "server/core/reactor.h"

/// The reactor's events that come from trainers, and its scheduling.
namespace imgd {

bool Reactor::AcceptsReportsOf(const NodeId& node, RunKey run, uint32_t rank) {
  const JobRecord* job = state_.FindJob(run.job);
  if (job != nullptr && job->generation == run.generation) {
    const Part* part = PartOfRank(job->run, rank);
    if (part != nullptr && part->node == node) return true;
  }
  ++stale_reports_;
  return false;
}

void Reactor::OnTrainerStarted(RunKey run, uint32_t rank, Now now, Actions& out) {
  const JobRecord* job = ActiveRun(run);
  if (job == nullptr || rank >= job->WorldSize()) return;
  state_.EditJob(run.job).run.started.insert(rank);
  pending_.insert(run.job);
  Drain(now, out);
}

void Reactor::OnTrainerCheckpoint(RunKey run, Checkpoint checkpoint, Now now, Actions& out) {
  const JobRecord* job = state_.FindJob(run.job);
  if (job == nullptr || job->generation != run.generation || checkpoint.generation != run.generation) {
    ++stale_reports_;
    return;
  }
  JobRecord& edited = state_.EditJob(run.job);
  out.push_back(SaveCheckpoint{run.job, checkpoint, now.wall});
  AcceptCheckpoint(edited, std::move(checkpoint));
}

void Reactor::OnTrainerFinished(RunKey run, uint32_t rank, Now now, Actions& out) {
  if (ActiveRun(run) == nullptr || rank != 0) return;
  state_.EditJob(run.job).run.finished = true;
  pending_.insert(run.job);
  Drain(now, out);
}

void Reactor::OnTrainerFailed(RunKey run, RankFailure failure, Now now, Actions& out) {
  if (ActiveRun(run) == nullptr) return;
  state_.EditJob(run.job).run.failures.push_back(std::move(failure));
  pending_.insert(run.job);
  Drain(now, out);
}

void Reactor::OnTrainerEventsLost(const NodeId& node, RunKey run, uint32_t rank, uint64_t count,
                                  const std::string& reason, Now now, Actions& out) {
  const JobRecord* job = state_.FindJob(run.job);
  if (job == nullptr || job->generation != run.generation) return;
  out.push_back(AppendEvent{
      .job = run.job,
      .generation = run.generation,
      .from = job->state,
      .to = job->state,
      .reason = {job->reason.code, fmt::format("{} of rank {} {} lost: {}",
                                               count == 1 ? "1 event" : fmt::format("{} events", count), rank,
                                               count == 1 ? "is" : "are", reason)},
      .actor = fmt::format("agent:{}", node),
      .time = now.wall});
}

Snapshot Reactor::FreeAndHeld() const {
  Snapshot snapshot;
  for (const auto& [id, node] : state_.nodes()) {
    NodeSlots slots{.id = id,
                    .holders = node.holders,
                    .usable = node.Usable(),
                    .lost = node.state == NodeState::kLost,
                    .why_not = ExplainNode(node),
                    .view = ViewOf(node)};
    for (size_t i = 0; i < node.devices.size(); ++i) {
      slots.devices.push_back(node.devices[i].index);
      if (slots.holders[i] == JobId() && node.ForeignHolder(node.devices[i].index)) {
        slots.holders[i] = kForeignHolder;
      }
    }
    snapshot.nodes.push_back(std::move(slots));
  }
  for (const JobId id : state_.active()) snapshot.job_names[id] = state_.FindJob(id)->name;
  if (const JobRecord* job = state_.FindJob(blocker_)) snapshot.job_names[blocker_] = job->name;
  return snapshot;
}

Snapshot Reactor::MakeSnapshot() const {
  Snapshot snapshot = FreeAndHeld();
  for (const auto& [id, parts] : kept_) {
    const JobRecord* job = state_.FindJob(id);
    if (job == nullptr || job->state != JobState::kQueued) continue;
    snapshot.job_names[id] = job->name;
    snapshot.retrying.insert(id);
    for (const auto& part : parts) {
      const auto node = std::find_if(snapshot.nodes.begin(), snapshot.nodes.end(),
                                     [&part](const NodeSlots& slots) { return slots.id == part.node; });
      if (node != snapshot.nodes.end()) node->Take(id, part.devices);
    }
  }
  return snapshot;
}

bool Reactor::BackoffDue(Now now) const { return now.steady >= next_backoff_; }

void Reactor::Schedule(Now now, Actions& out) {
  Drain(now, out);
  if (!dirty_) return;
  dirty_ = false;
  next_backoff_ = Instant::max();
  const Plan plan = MakePlan(FreeAndHeld(), state_.queue(), now.steady);
  for (const auto& job : state_.queue()) {
    if (job.not_before > now.steady) next_backoff_ = std::min(next_backoff_, job.not_before);
  }
  blocker_ = plan.blocker;
  kept_ = plan.kept;
  for (const auto& placement : plan.starts) StartJob(placement, now, out);
  if (!plan.waits.empty()) {
    const Snapshot after = MakeSnapshot();
    for (const auto& change : plan.waits) SetWait(change, after, now, out);
  }
  Drain(now, out);
}

void Reactor::StartJob(const Placement& placement, Now now, Actions& out) {
  JobRecord& job = state_.EditJob(placement.job);
  BeginRun(job, placement.parts, now);
  std::string nodes;
  for (const auto& part : job.run.parts) nodes += fmt::format("{}{}", nodes.empty() ? "" : ", ", part.node);
  auto event =
      ChangeState(job, JobState::kStarting,
                  {ReasonCode::kPlaced, fmt::format("placed on {}; its ranks are being started", nodes)},
                  "scheduler", now);
  if (event) out.push_back(std::move(*event));
  state_.Changed(job.id);
  pending_.insert(job.id);
}

void Reactor::SetWait(const WaitChange& change, const Snapshot& snapshot, Now now, Actions& out) {
  // A backoff was given its reason, and its row in the history, when it began.
  if (change.code == ReasonCode::kBackoff) return;
  JobRecord& job = state_.EditJob(change.job);
  state_.SetWait(job.id, change.code);
  const QueuedJob key{.priority = job.priority, .id = job.id};
  const auto& queue = state_.queue();
  const auto place = std::lower_bound(queue.begin(), queue.end(), key,
                                      [](const QueuedJob& a, const QueuedJob& b) { return a.Before(b); });
  const Waiting waiting = WaitingOf(*place, change.code, static_cast<size_t>(place - queue.begin()) + 1);
  auto event = ChangeState(job, JobState::kQueued, {change.code, ExplainWait(snapshot, waiting, blocker_)},
                           "scheduler", now);
  if (event) out.push_back(std::move(*event));
}

}  // namespace imgd
