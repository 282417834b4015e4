#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>

#include "server/engine/engine.h"

/// What goes: jobs that somebody deletes, and what is older than it is to be kept.
namespace imgd {
namespace {

/// Of each kind in one batch, so that none takes long.
constexpr size_t kMostRemoved = 50;
/// Events of what goes, while something always does.
constexpr Duration kToldEvery = std::chrono::minutes(1);

/// Of a job that left no file. Beside the databases alone: a file system that others share may hang.
void RemoveEmptyFolder(const std::filesystem::path& state_dir, const std::filesystem::path& folder) {
  if (folder.parent_path() == (state_dir / "checkpoints").lexically_normal()) ::rmdir(folder.c_str());
}

}  // namespace

void Engine::Delete(JobId job, std::string actor, std::function<void(Status)> done) {
  PushOrRefuse<DeleteInput>(JobDeletion{job, std::move(actor)}, std::move(done));
}

void Engine::Handle(DeleteInput& input) {
  view_changed_ = true;
  const auto job = Deletable(input.order.job);
  if (job) Remove(*job, input.order.actor, "deleted");
  const Status may = job ? Status() : tl::unexpected(job.error());
  done_.push_back([done = std::move(input.done), may](const Status& status) { done(status ? may : status); });
}

Result<JobRecord> Engine::Deletable(JobId id) {
  const JobRecord* known = reactor_.state().FindJob(id);
  const std::optional<JobRecord> stored = known == nullptr ? OrFail(state_.FindJob(id)) : std::nullopt;
  if (known == nullptr && !stored) return Fail(ErrorCode::kNotFound, "there is no job {}", id);
  const JobRecord& job = known == nullptr ? *stored : *known;
  if (!IsFinal(job.state)) {
    return Fail(ErrorCode::kFailedPrecondition, "job {} has not ended ({}); imgcli cancel {} ends it", id,
                NameOf(job.state), id);
  }
  if (job.sweep == JobId() || reactor_.state().FindSweep(job.sweep) == nullptr) return job;
  return Fail(ErrorCode::kFailedPrecondition, "job {} is of sweep {}, of which others have not ended", id,
              job.sweep);
}

void Engine::Remove(const JobRecord& job, const std::string& actor, std::string_view why) {
  const JobId id = job.id;
  removed_.push_back({id, actor, why});
  reactor_.ForgetInStrikes(id);
  done_.push_back(
      [this, id, actor, folder = job.checkpoint_dir, why = std::string(why)](const Status& status) {
        if (!status) return;
        reactor_.Drop(id);
        event_numbers_.erase(id);
        if (notice_sink_.forget) notice_sink_.forget(id);
        log_store_.RemoveJob(id);
        RemoveEmptyFolder(settings_.state_dir, folder);
        spdlog::info("job={} actor=\"{}\" msg=\"{}: its history, figures and log are gone\"", id, actor, why);
      });
}

/// After all else of the batch, so that nothing that was said of them late stays. That they went does: who
/// has them on a page is told by it.
void Engine::SaveRemoved() {
  for (const auto& [id, actor, why] : removed_) {
    state_.DeleteJob(id, now_.wall);
    log_store_.LeaveOut(id);
    metrics_.RemoveJob(id);
    AppendDecision({.job = id,
                    .reason = {ReasonCode::kNone, fmt::format("job {} was {}", id, why)},
                    .actor = actor,
                    .time = now_.wall});
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

std::vector<JobId> Engine::JobsOverLogs(bool& more) {
  const auto sizes = OrFail(log_store_.Sizes());
  uint64_t all = 0;
  for (const auto& [job, bytes] : sizes) all += bytes;
  std::vector<JobId> out;
  if (all <= settings_.logs_total_bytes) return out;
  const auto ended = OrFail(state_.EndedJobs(logs_gone_, now_.wall, kMostRemoved));
  for (const auto& job : ended) {
    if (all <= settings_.logs_total_bytes) return out;
    logs_gone_ = job;
    const auto size = sizes.find(job.id);
    if (size == sizes.end()) continue;
    out.push_back(job.id);
    all -= size->second;
  }
  more = more || ended.size() == kMostRemoved;
  return out;
}

std::vector<JobId> Engine::JobOverFigures(bool& more) {
  if (OrFail(metrics_.UsedBytes()) <= settings_.metrics_total_bytes) return {};
  const auto ended = OrFail(state_.EndedJobs(metrics_gone_, now_.wall, kMostRemoved));
  for (const auto& job : ended) {
    metrics_gone_ = job;
    if (!OrFail(metrics_.HasFigures(job.id))) continue;
    more = true;  // how much there is then shows only afterwards
    return {job.id};
  }
  more = more || ended.size() == kMostRemoved;
  return {};
}

void Engine::RemoveLogs(const std::vector<JobId>& jobs, const char* why) {
  for (const JobId id : jobs) {
    log_store_.LeaveOut(id);
    metrics_.RemoveLogs(id);
  }
  if (jobs.empty()) return;
  done_.push_back([this, jobs, why](const Status& status) {
    if (!status) return;
    for (const JobId id : jobs) log_store_.RemoveJob(id);
    NoteGone("logs", jobs, why);
  });
}

void Engine::RemoveFigures(const std::vector<JobId>& jobs, const char* why) {
  for (const JobId id : jobs) metrics_.RemoveFigures(id);
  if (jobs.empty()) return;
  done_.push_back([this, jobs, why](const Status& status) {
    if (status) NoteGone("figures", jobs, why);
  });
}

void Engine::NoteGone(const char* what, const std::vector<JobId>& jobs, const char* why) {
  if (gone_.empty()) gone_since_ = now_.steady;
  Gone& gone =
      gone_[fmt::format("the {} of {{}} removed, those of the jobs that ended first: {}", what, why)];
  gone.jobs += jobs.size();
  gone.last = jobs.back();
}

void Engine::TellWhatWent(bool all) {
  if (gone_.empty() || (!all && now_.steady < gone_since_ + kToldEvery)) return;
  for (const auto& [sentence, gone] : gone_) {
    const std::string whose =
        gone.jobs == 1 ? fmt::format("job {} were", gone.last)
                       : fmt::format("{} jobs, the last of them job {}, were", gone.jobs, gone.last);
    AppendDecision({.reason = {ReasonCode::kNone, fmt::format(fmt::runtime(sentence), whose)},
                    .actor = "imgd",
                    .time = now_.wall});
  }
  done_.push_back([this, told = std::exchange(gone_, {})](const Status& status) {
    if (!status) gone_ = told;
  });
}

/// From an agent that was away, say. If the job has been passed, it is looked at once more.
void Engine::NoteLate(JobId id) {
  const JobRecord* known = reactor_.state().FindJob(id);
  if (known != nullptr && !IsFinal(known->state)) return;
  const auto stored = known == nullptr ? OrFail(state_.FindJob(id)) : std::nullopt;
  if (known == nullptr && !stored) return;
  const WallTime ended = known != nullptr ? known->ended : stored->ended;
  const EndedJob before{ended.micros, JobId(id.value() - 1)};
  metrics_gone_ = std::min(metrics_gone_, before);
  logs_gone_ = std::min(logs_gone_, before);
}

void Engine::RemoveWhatIsOld() {
  // Where the clock was put back, jobs that end now are among those that were passed.
  if (now_.wall.micros < std::max(metrics_gone_, logs_gone_).ended_us) metrics_gone_ = logs_gone_ = {};
  if (now_.steady < remove_at_) return;
  bool more_figures = false;
  auto figures = OldJobs(settings_.metrics_kept_for, metrics_gone_, more_figures);
  std::erase_if(figures, [this](JobId id) { return !OrFail(metrics_.HasFigures(id)); });
  RemoveFigures(figures, "metrics_kept_for");
  bool more_logs = false;
  auto logs = OldJobs(settings_.logs_kept_for, logs_gone_, more_logs);
  if (!logs.empty()) {
    std::erase_if(logs, [sizes = OrFail(log_store_.Sizes())](JobId id) { return !sizes.contains(id); });
  }
  RemoveLogs(logs, "logs_kept_for");
  bool gone = !figures.empty() || !logs.empty();
  // What is left may be too much all the same.
  if (!more_figures && settings_.metrics_total_bytes > 0) {
    const auto over = JobOverFigures(more_figures);
    RemoveFigures(over, "metrics_total_bytes");
    gone = gone || !over.empty();
  }
  if (!more_logs && settings_.logs_total_bytes > 0) {
    const auto over = JobsOverLogs(more_logs);
    RemoveLogs(over, "logs_total_bytes");
    gone = gone || !over.empty();
  }
  // Those that may not go yet are looked at again once all others were.
  bool more_jobs = false;
  for (const JobId id : OldJobs(settings_.jobs_kept_for, jobs_gone_, more_jobs)) {
    if (const auto job = Deletable(id)) Remove(*job, "imgd", "removed, as jobs are kept for a time");
  }
  if (!more_jobs) jobs_gone_ = {};
  TellWhatWent(!gone);
  const bool more = more_figures || more_logs || more_jobs;
  remove_at_ = now_.steady + (more || gone ? Duration::zero() : std::chrono::minutes(1));
}

}  // namespace imgd
