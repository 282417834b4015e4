#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "server/core/job.h"
#include "server/core/ranking.h"
#include "server/core/reactor.h"
#include "server/core/waits.h"

/// The reactor's part in what jobs wait for besides devices, and in sweeps.
namespace imgd {
namespace {

Status CheckWaits(size_t members, size_t after) {
  if (members * after <= kMostWaits) return {};
  return tl::unexpected(
      Error{.code = ErrorCode::kInvalidArgument,
            .message = fmt::format("after: each of the sweep's {} jobs would wait for {} others, which is "
                                   "more than {} waits in all",
                                   members, after, kMostWaits),
            .hint = "let one job come after those others, and the sweep after that one"});
}

}  // namespace

Status Reactor::MaySubmit(const Submission& submission, const std::vector<Submission>& members) const {
  IMGD_TRY(CheckWaits(members.size(), submission.after.size()));
  for (const auto& dependency : submission.after) IMGD_TRY(MayComeAfter(dependency));
  // A sweep may have members of several projects.
  std::map<std::string, uint32_t> more;
  const auto count = [&more](const Submission& job) {
    for (const auto& account : AccountsOf(job.owner, job.project)) ++more[account];
  };
  if (members.empty()) count(submission);
  for (const auto& member : members) count(member);
  for (const auto& [account, jobs] : more) {
    const Quota& quota = settings_.quotas.OfAccount(account);
    const uint32_t has = state_.QueuedOf(account);
    if (quota.queued == 0 || has + jobs <= quota.queued) continue;
    return tl::unexpected(Error{
        .code = ErrorCode::kFailedPrecondition,
        .message = jobs == 1
                       ? fmt::format("{} has as many jobs waiting as the quota allows, {}", account, has)
                       : fmt::format("{} has {} jobs waiting and the quota allows {}; the sweep has {}{}",
                                     account, has, quota.queued, jobs, jobs < members.size() ? " of it" : ""),
        .hint = fmt::format(
            "{}, or ask the operator (quotas in imgd.yaml)",
            jobs > quota.queued ? "make the sweep smaller" : "try again when some have started")});
  }
  return {};
}

Status Reactor::MayComeAfter(const Dependency& dependency) const {
  const JobRecord* job = state_.FindJob(dependency.job);
  if (job == nullptr) return Fail(ErrorCode::kNotFound, "after: there is no job {}", dependency.job);
  if (!IsFinal(job->state) || Fulfils(dependency.when, job->state)) return {};
  return tl::unexpected(
      Error{.code = ErrorCode::kFailedPrecondition,
            .message = fmt::format(
                "after: job {} ({}) has ended as {} already, and this one is to start only if it {}", job->id,
                job->name, NameOf(job->state), dependency.when == AfterEnd::kFailed ? "fails" : "completes"),
            .hint = "leave it out, say when: any, or run that one again and name the new one"});
}

JobId Reactor::OnSubmitSweep(const SweepSubmission& submission, Now now, Actions& out) {
  SweepRecord sweep{.id = next_job_,
                    .name = submission.name,
                    .owner = submission.owner,
                    .members = static_cast<uint32_t>(submission.members.size()),
                    .max_running = submission.max_running,
                    .halving = submission.halving,
                    .submitted = now.wall};
  if (sweep.halving) sweep.rungs.resize(sweep.halving->rungs.size());
  const JobId id = sweep.id;
  state_.AddSweep(std::move(sweep));
  for (const auto& member : submission.members) Add(member, id, now, out);
  return id;
}

/// One step of what follows from ends and from who is held back; false when nothing is left to do.
bool Reactor::SettleWaits(Now now, Actions& out) {
  if (const JobId ended = state_.TakeAwaited(); ended != JobId()) {
    TellThoseAfter(ended);
    return true;
  }
  if (const JobId held = state_.TakeHeldBack(); held != JobId()) {
    NoteHeldBack(held, now, out);
    return true;
  }
  if (const JobId sweep = state_.TakeToHalve(); sweep != JobId()) {
    StopWorst(sweep, now, out);
    return true;
  }
  return false;
}

void Reactor::TellThoseAfter(JobId ended) {
  const JobState as = state_.FindJob(ended)->state;
  if (!IsFinal(as)) return;
  for (const JobId id : state_.TakeWaiters(ended)) {
    for (auto& dependency : state_.EditJob(id).after) {
      if (dependency.job == ended) dependency.ended = as;
    }
    state_.Changed(id);
    dirty_ = true;
  }
}

/// Gives it its reason; or ends it, where what it waits for can't come any more.
void Reactor::NoteHeldBack(JobId id, Now now, Actions& out) {
  const JobRecord* known = state_.FindJob(id);
  if (known == nullptr || known->state != JobState::kQueued || PlaceIn(state_.queue(), state_.KeyOf(*known)))
    return;
  if (known->not_before_wall.micros != 0 && known->not_before_wall <= now.wall) {
    // It came while the job waited for others.
    state_.EditJob(id).not_before_wall = {};
    state_.Changed(id);
    dirty_ = true;
    return;
  }
  if (std::any_of(known->after.begin(), known->after.end(), IsBroken)) {
    JobRecord& job = state_.EditJob(id);
    auto event =
        ChangeState(job, JobState::kFailed, {ReasonCode::kAfterNever, ExplainBroken(job)}, "scheduler", now);
    if (event) out.push_back(std::move(*event));
    state_.Changed(id);
    dirty_ = true;
    return;
  }
  Reason reason = ExplainHeldBack(*known, state_.FindSweep(known->sweep));
  if (known->reason == reason) return;
  JobRecord& job = state_.EditJob(id);
  if (job.reason.code == reason.code) {
    job.reason = std::move(reason);  // fewer jobs to wait for: no line of its own in the history
    return;
  }
  auto event = ChangeState(job, JobState::kQueued, std::move(reason), "scheduler", now);
  if (event) out.push_back(std::move(*event));
}

void Reactor::LetGoInTime(WallTime now) {
  for (const JobId id : state_.held_back().Due(now)) {
    state_.EditJob(id).not_before_wall = {};
    state_.Changed(id);
    dirty_ = true;
  }
}

void Reactor::OnTrainerEpoch(RunKey run, const EpochFigures& figures, Now now, Actions& out) {
  const JobRecord* job = state_.FindJob(run.job);
  if (job == nullptr || job->generation != run.generation || job->sweep == JobId()) return;
  if (IsFinal(job->state)) return;  // told late: what others had was judged without it
  const SweepRecord* sweep = state_.FindSweep(job->sweep);
  if (sweep == nullptr || !sweep->halving) return;
  for (size_t rung = 0; rung < sweep->rungs.size(); ++rung) {
    // One that comes to it again, after a restart, keeps what it had.
    const bool reached = figures.epoch >= sweep->halving->rungs[rung];
    if (!reached || sweep->rungs[rung].contains(run.job)) continue;
    const double value = figures.Of(sweep->halving->metric);
    state_.EditSweep(sweep->id).rungs[rung].emplace(run.job, value);
    out.push_back(SaveRungResult{sweep->id, rung, run.job, value});
  }
  Drain(now, out);
}

void Reactor::StopWorst(JobId id, Now now, Actions& out) {
  const SweepRecord* sweep = state_.FindSweep(id);
  if (sweep == nullptr || !sweep->halving) return;
  const auto may_come = [this](JobId member) {
    const JobRecord* job = state_.FindJob(member);
    return job != nullptr && !IsFinal(job->state);
  };
  for (const auto& [job, rung] : OutOf(*sweep, may_come))
    Halve(job, ExplainHalved(*sweep, rung, sweep->rungs[rung].at(job)), now, out);
}

/// Ends a member for good, without a last checkpoint: nobody goes on from it.
void Reactor::Halve(JobId id, std::string why, Now now, Actions& out) {
  const JobRecord* known = state_.FindJob(id);
  if (known == nullptr || IsFinal(known->state)) return;
  if (!known->HoldsDevices()) {
    auto event = ChangeState(state_.EditJob(id), JobState::kCompleted, {ReasonCode::kHalved, std::move(why)},
                             "scheduler", now);
    if (event) out.push_back(std::move(*event));
    state_.Changed(id);
    dirty_ = true;
    return;
  }
  const StopFor stop = known->run.stop;
  if (stop == StopFor::kCancel || stop == StopFor::kTimeLimit || stop == StopFor::kHalve) return;
  JobRecord& job = state_.EditJob(id);
  if (stop == StopFor::kNothing) job.run.stop_since = now.steady;
  GiveUpGrowth(id, now);
  job.run.stop = StopFor::kHalve;
  job.run.checkpoint_first = false;
  job.run.stop_text = std::move(why);
  job.reason.text = fmt::format("{}; the ranks are being stopped", job.run.stop_text);
  pending_.insert(id);
}

}  // namespace imgd
