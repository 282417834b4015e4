#include <spdlog/spdlog.h>

#include "server/engine/engine.h"

/// What goes: jobs that somebody deletes, and what is older than it is to be kept.
namespace imgd {
namespace {

/// Of each kind in one batch, so that none takes long.
constexpr size_t kMostRemoved = 50;

}  // namespace

void Engine::Delete(JobId job, std::string actor, std::function<void(Status)> done) {
  PushOrRefuse<DeleteInput>(JobDeletion{job, std::move(actor)}, std::move(done));
}

void Engine::Handle(DeleteInput& input) {
  view_changed_ = true;
  const Status may = MayDelete(input.order.job);
  if (may) Remove(input.order.job, input.order.actor, "deleted");
  done_.push_back([done = std::move(input.done), may](const Status& status) { done(status ? may : status); });
}

Status Engine::MayDelete(JobId id) {
  const JobRecord* known = reactor_.state().FindJob(id);
  const std::optional<JobRecord> stored = known == nullptr ? OrFail(state_.FindJob(id)) : std::nullopt;
  if (known == nullptr && !stored) return Fail(ErrorCode::kNotFound, "there is no job {}", id);
  const JobRecord& job = known == nullptr ? *stored : *known;
  if (!IsFinal(job.state)) {
    return Fail(ErrorCode::kFailedPrecondition, "job {} has not ended ({}); imgcli cancel {} ends it", id,
                NameOf(job.state), id);
  }
  if (job.sweep == JobId() || reactor_.state().FindSweep(job.sweep) == nullptr) return {};
  return Fail(ErrorCode::kFailedPrecondition, "job {} is of sweep {}, of which others have not ended", id,
              job.sweep);
}

void Engine::Remove(JobId id, const std::string& actor, std::string_view why) {
  removed_.push_back(id);
  AppendDecision({.reason = {ReasonCode::kNone, fmt::format("job {} was {}", id, why)},
                  .actor = actor,
                  .time = now_.wall});
  done_.push_back([this, id, actor, why = std::string(why)](const Status& status) {
    if (!status) return;
    reactor_.Drop(id);
    event_numbers_.erase(id);
    log_store_.RemoveJob(id);
    spdlog::info("job={} actor=\"{}\" msg=\"{}: its history, figures and log are gone\"", id, actor, why);
  });
}

/// After all else of the batch, so that nothing that was said of them late stays.
void Engine::SaveRemoved() {
  for (const JobId id : removed_) {
    state_.DeleteJob(id);
    metrics_.RemoveJob(id);
  }
  removed_.clear();
}

std::vector<JobId> Engine::OldJobs(Duration kept_for, EndedJob& from, bool& more) {
  std::vector<JobId> out;
  if (kept_for == Duration::zero()) return out;
  const auto kept = std::chrono::duration_cast<std::chrono::microseconds>(kept_for);
  const auto ended = OrFail(state_.EndedJobs(from, {now_.wall.micros - kept.count()}, kMostRemoved));
  for (const auto& job : ended) out.push_back(job.id);
  if (!ended.empty()) from = ended.back();
  more = more || ended.size() == kMostRemoved;
  return out;
}

void Engine::RemoveWhatIsOld() {
  if (now_.steady < remove_at_) return;
  bool more = false;
  for (const JobId id : OldJobs(settings_.metrics_kept_for, metrics_gone_, more)) metrics_.RemoveFigures(id);
  for (const JobId id : OldJobs(settings_.logs_kept_for, logs_gone_, more)) {
    metrics_.RemoveLogs(id);
    done_.push_back([this, id](const Status& status) {
      if (status) log_store_.RemoveJob(id);
    });
  }
  // Those that may not go yet are looked at again once all others were.
  bool more_jobs = false;
  for (const JobId id : OldJobs(settings_.jobs_kept_for, jobs_gone_, more_jobs)) {
    if (MayDelete(id)) Remove(id, "imgd", "removed, as jobs are kept for a time");
  }
  if (!more_jobs) jobs_gone_ = {};
  remove_at_ = now_.steady + (more || more_jobs ? Duration::zero() : std::chrono::minutes(1));
}

}  // namespace imgd
