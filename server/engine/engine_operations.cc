#include "server/core/explain.h"
#include "server/engine/engine.h"

/// What people ask of jobs and nodes, and the record of decisions.
namespace imgd {
namespace {

std::string_view WordFor(JobOrder::What what) {
  switch (what) {
    case JobOrder::What::kPause:
      return "paused";
    case JobOrder::What::kResume:
      return "resumed";
    case JobOrder::What::kMove:
      return "moved";
    case JobOrder::What::kPriority:
      return "given another priority";
    case JobOrder::What::kTimeLimit:
      return "given another time_limit";
  }
  return "changed";
}

}  // namespace

void Engine::ChangeJob(JobOrder order, std::function<void(Status)> done) {
  PushOrRefuse<JobOrderInput>(std::move(order), std::move(done));
}

void Engine::ChangeNode(NodeOrder order, std::function<void(Status)> done) {
  PushOrRefuse<NodeOrderInput>(std::move(order), std::move(done));
}

Status Engine::MayChange(const JobOrder& order) const {
  const JobRecord* job = reactor_.state().FindJob(order.job);
  if (!settings_.may_change || job == nullptr) return {};
  if (order.what == JobOrder::What::kPriority) return settings_.may_change(*job, order.what, order.priority);
  if (order.what != JobOrder::What::kTimeLimit) return {};
  return settings_.may_change(*job, order.what,
                              order.time_limit.to_ms.value_or(job->time_limit_ms + order.time_limit.by_ms));
}

Status Engine::Ask(const JobOrder& order, Actions& actions) {
  IMGD_TRY(MayChange(order));
  switch (order.what) {
    case JobOrder::What::kPause:
      return reactor_.OnPause(order.job, order.actor, now_, actions);
    case JobOrder::What::kResume:
      return reactor_.OnResume(order.job, order.actor, now_, actions);
    case JobOrder::What::kMove:
      return reactor_.OnMove(order.job, order.actor, now_, actions);
    case JobOrder::What::kPriority:
      return reactor_.OnSetPriority(order.job, order.priority, order.actor, now_, actions);
    case JobOrder::What::kTimeLimit:
      return reactor_.OnSetTimeLimit(order.job, order.time_limit, order.actor, now_, actions);
  }
  return {};
}

Status Engine::Ask(const NodeOrder& order, Actions& actions) {
  using What = NodeOrder::What;
  if (order.what == What::kCordon || order.what == What::kDrain) {
    return reactor_.OnSetAside(order.node, order.what == What::kDrain, order.reason, order.actor, now_,
                               actions);
  }
  if (order.what == What::kForget) return reactor_.OnForget(order.node, order.actor, now_, actions);
  return reactor_.OnReturn(order.node, order.what == What::kUndrain, order.actor, now_, actions);
}

Status Engine::EndedOrUnknown(JobId job, std::string_view what) {
  const auto stored = OrFail(state_.FindJob(job));
  if (!stored) return Fail(ErrorCode::kNotFound, "there is no job {}", job);
  return Fail(ErrorCode::kFailedPrecondition, "job {} cannot be {}: it has ended already ({})", job, what,
              NameOf(stored->state));
}

void Engine::Handle(JobOrderInput& input) {
  view_changed_ = true;
  Actions actions;
  Status result = Ask(input.order, actions);
  if (!result && result.error().code == ErrorCode::kNotFound) {
    // It may have ended too long ago to be remembered by the reactor.
    result = EndedOrUnknown(input.order.job, WordFor(input.order.what));
  }
  Record(actions);
  done_.push_back(
      [done = std::move(input.done), result](const Status& status) { done(status ? result : status); });
}

void Engine::Handle(NodeOrderInput& input) {
  view_changed_ = view_urgent_ = true;
  Actions actions;
  const Status result = Ask(input.order, actions);
  Record(actions);
  done_.push_back(
      [done = std::move(input.done), result](const Status& status) { done(status ? result : status); });
}

std::optional<Error> Engine::CheckRerun(Submission& submission) {
  const JobId id = submission.rerun_of;
  std::optional<JobRecord> job;
  if (const JobRecord* known = reactor_.state().FindJob(id)) {
    job = *known;
  } else {
    job = OrFail(state_.FindJob(id));
  }
  if (!job) return Error{.code = ErrorCode::kNotFound, .message = fmt::format("there is no job {}", id)};
  if (!job->by_hand) {
    // The file of a sweep's job has the name of the sweep.
    if (job->name.starts_with(submission.name + "[")) submission.name = job->name;
    return std::nullopt;
  }
  return Error{.code = ErrorCode::kFailedPrecondition,
               .message = fmt::format("job {} was {}; its file is not made for imgd", id,
                                      ExplainByHand(*job->by_hand)),
               .hint = fmt::format("imgcli show {} -o wide prints it; submit what you make of it", id)};
}

void Engine::TrimDecisions() {
  if (now_.steady < trim_at_) return;
  trim_at_ = now_.steady + std::chrono::minutes(1);
  const int64_t kept_us =
      std::chrono::duration_cast<std::chrono::microseconds>(settings_.events_kept_for).count();
  if (const auto done = state_.TrimDecisions(settings_.events_kept, {now_.wall.micros - kept_us}); !done) {
    if (!failed_) failed_ = done.error();
  }
}

}  // namespace imgd
