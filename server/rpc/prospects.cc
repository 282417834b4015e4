#include "server/rpc/prospects.h"

#include <algorithm>

#include "server/core/forecast.h"

namespace imgd {
namespace {

/// Microseconds since 1970; nothing that is past.
int64_t WallOf(Instant when, Now now) {
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(when - now.steady).count();
  return now.wall.micros + std::max<int64_t>(left, 0);
}

uint32_t TurnIn(const ClusterView& view, const std::string& owner) {
  const auto turn = view.turns.find(owner);
  return turn == view.turns.end() ? 0 : turn->second;
}

/// What nobody of these accounts has anything of yet, the view does not know.
void AllowNew(const Submission& job, const Quotas& quotas, Snapshot& snapshot) {
  const auto allow = [&snapshot](const std::string& account, const Quota& quota) {
    // One that has used up what it may is known.
    if (quota.devices > 0) snapshot.allowances[account].devices = quota.devices;
  };
  allow("user " + job.owner, quotas.OfUser(job.owner));
  if (!job.project.empty()) allow("project " + job.project, quotas.OfProject(job.project));
}

}  // namespace

void FillForecast(const ClusterView& view, Now now, v1::Job& job) {
  if (job.queue_position() == 0 || job.queue_position() > view.queue.size()) return;
  const size_t place = job.queue_position() - 1;
  if (view.queue[place].id.value() != job.id()) return;
  const auto start = ForecastStart(view.snapshot, view.queue, place);
  if (start) job.set_expected_start_us(WallOf(*start, now));
}

void FillProspect(const Submission& submission, const ClusterView& view, const Quotas& quotas, Now now,
                  v1::Job& out) {
  QueuedJob job = EntryOf(NewJob(submission, JobId(), "", now.wall));
  job.turn = TurnIn(view, submission.owner);
  Snapshot snapshot = view.snapshot;
  AllowNew(submission, quotas, snapshot);
  const Prospect prospect = ProspectOf(snapshot, view.queue, std::move(job));
  out.set_reason(static_cast<v1::ReasonCode>(prospect.code));
  out.set_reason_text(prospect.text);
  if (prospect.start) out.set_expected_start_us(WallOf(*prospect.start, now));
}

}  // namespace imgd
