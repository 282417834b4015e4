#include "server/rpc/prospects.h"

#include <algorithm>

#include "server/core/cluster_state.h"
#include "server/core/explain.h"
#include "server/core/forecast.h"
#include "server/core/growth.h"
#include "server/core/job.h"
#include "server/core/ranking.h"

namespace imgd {
namespace {

/// Beyond this no time is told from another. Steady time, in nanoseconds, ends after 292 years, and what jobs
/// may take is added to it.
constexpr std::chrono::hours kFarOff{100 * 365 * 24};

/// Microseconds since 1970; nothing that is past.
int64_t WallOf(Instant when, Now now) {
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(when - now.steady).count();
  return now.wall.micros + std::max<int64_t>(left, 0);
}

/// What nobody of these accounts has anything of yet, the view does not know.
void AllowNew(const Submission& job, const Quotas& quotas, Snapshot& snapshot) {
  for (const auto& account : AccountsOf(job.owner, job.project)) {
    // One that has used up what it may is known.
    if (const uint32_t most = quotas.OfAccount(account).devices; most > 0)
      snapshot.allowances[account].devices = most;
  }
}

/// When the job comes to the queue; nothing where nobody knows when those before it end.
std::optional<Instant> ComesAt(const JobRecord& job, const ClusterView& view, Now now) {
  const std::chrono::microseconds held(std::max<int64_t>(job.not_before_wall.micros, now.wall.micros) -
                                       now.wall.micros);
  Instant at = now.steady + std::min<std::chrono::microseconds>(held, kFarOff);
  for (const auto& dependency : job.after) {
    if (dependency.ended) continue;
    // That it ends is known, not that it fails.
    if (dependency.when == AfterEnd::kFailed) return std::nullopt;
    // One that only gives its devices back has not ended then.
    const auto holder = view.snapshot.holders.find(dependency.job);
    const Leaving leaving = holder == view.snapshot.holders.end() ? Leaving::kNot : holder->second.leaving;
    if (leaving == Leaving::kGoesOn || leaving == Leaving::kComesBack) return std::nullopt;
    const auto end = view.snapshot.ends.find(dependency.job);
    if (end == view.snapshot.ends.end()) return std::nullopt;
    at = std::max(at, end->second);
  }
  return at;
}

/// When it will probably start, `cluster` being as it is now.
void FillLater(const JobRecord& job, const Snapshot& cluster, const ClusterView& view, Now now,
               v1::Job& out) {
  const auto comes = ComesAt(job, view, now);
  if (!comes) return;
  QueuedJob entry = EntryOf(job);
  view.ranking.Rank(job, entry);
  entry.not_before = *comes;
  const auto start = ForecastLater(cluster, view.queue, std::move(entry));
  if (start) out.set_expected_start_us(std::max(WallOf(*start, now), job.not_before_wall.micros));
}

/// Why the job would not start if nothing else ran: it asks for more than it may have (kQuota), or than there
/// is (kNeverFits). kNone where only others are in its way.
ReasonCode WhyNeverStarts(Snapshot cluster, QueuedJob job) {
  for (auto& node : cluster.nodes) {
    std::fill(node.holders.begin(), node.holders.end(), JobId());
    node.lost = false;  // it may come back
  }
  for (auto& [account, allowance] : cluster.allowances) allowance.used = 0;
  const ReasonCode code = ProspectOf(cluster, {}, std::move(job)).code;
  return code == ReasonCode::kQuota || code == ReasonCode::kNeverFits ? code : ReasonCode::kNone;
}

/// The same of one that waits for as long as it takes: budgets begin anew, but for those that never do.
ReasonCode WhyItCannotStart(Snapshot cluster, QueuedJob job) {
  for (auto& [account, allowance] : cluster.allowances) {
    if (allowance.used_up && allowance.used_up->until) allowance.used_up.reset();
  }
  return WhyNeverStarts(std::move(cluster), std::move(job));
}

constexpr std::string_view kCannotStart = "it could not start on the cluster as it is: ";

/// Of one that others or a time hold back: when it would start, or why it never would. Whether it could
/// start.
bool FillHeldBack(const JobRecord& record, const QueuedJob& job, Snapshot cluster, const ClusterView& view,
                  Now now, v1::Job& out) {
  for (auto& [account, allowance] : cluster.allowances) {
    if (allowance.used_up && allowance.used_up->until && *allowance.used_up->until <= record.not_before_wall)
      allowance.used_up.reset();  // its next period has begun by then
  }
  FillLater(record, cluster, view, now, out);
  const ReasonCode never = WhyNeverStarts(cluster, job);
  if (never == ReasonCode::kNone) return true;
  const bool can_start = WhyItCannotStart(cluster, job) == ReasonCode::kNone;
  out.set_reason(static_cast<v1::ReasonCode>(never));
  out.set_reason_text(fmt::format("then {}{}", can_start ? "it would wait: " : kCannotStart,
                                  ExplainWait(cluster, {.job = job, .code = never})));
  return can_start;
}

/// Why one that runs has no more nodes.
void FillSize(JobRecord record, const ClusterView& view, Now now, v1::Job& out) {
  RestoreHeld(record, now);
  const std::string size = ExplainSize(record, view.snapshot, view.queue);
  if (size.empty()) return;
  const std::string reason = out.reason_text();
  out.set_reason_text(reason.empty() ? size : fmt::format("{}; it {}", reason, size));
}

}  // namespace

void FillForecast(const JobRecord& record, const ClusterView& view, Now now, v1::Job& out) {
  if (record.IsElastic()) FillSize(record, view, now, out);
  if (record.state != JobState::kQueued) return;
  if (record.reason.code == ReasonCode::kNotBefore || record.reason.code == ReasonCode::kAfterJob)
    return FillLater(record, view.snapshot, view, now, out);
  if (out.queue_position() == 0 || out.queue_position() > view.queue.size()) return;
  const size_t place = out.queue_position() - 1;
  if (view.queue[place].id != record.id) return;
  const auto start = ForecastStart(view.snapshot, view.queue, place);
  if (start) out.set_expected_start_us(WallOf(*start, now));
}

bool FillProspect(const Submission& submission, const ClusterView& view, const Quotas& quotas, Now now,
                  v1::Job& out) {
  const JobRecord record = NewJob(submission, JobId(), "", now.wall);
  QueuedJob job = EntryOf(record);
  view.ranking.Rank(record, job);
  Snapshot snapshot = view.snapshot;
  AllowNew(submission, quotas, snapshot);
  const bool after = std::any_of(record.after.begin(), record.after.end(),
                                 [](const Dependency& dependency) { return !dependency.ended; });
  if (after || record.not_before_wall > now.wall) {
    out.set_reason(after ? v1::REASON_CODE_AFTER_JOB : v1::REASON_CODE_NOT_BEFORE);
    return FillHeldBack(record, job, std::move(snapshot), view, now, out);
  }
  const Prospect prospect = ProspectOf(snapshot, view.queue, job);
  out.set_reason(static_cast<v1::ReasonCode>(prospect.code));
  out.set_reason_text(prospect.text);
  if (prospect.start) out.set_expected_start_us(WallOf(*prospect.start, now));
  if (prospect.code == ReasonCode::kPlaced) return true;
  const ReasonCode never = WhyItCannotStart(snapshot, job);
  if (never == ReasonCode::kNone) return true;
  out.set_reason(static_cast<v1::ReasonCode>(never));
  out.set_reason_text(fmt::format("{}{}", kCannotStart, ExplainWait(snapshot, {.job = job, .code = never})));
  return false;
}

std::vector<std::string> AccountsInTheWay(const Submission& job, const ClusterView& view) {
  const uint64_t devices = uint64_t{job.nodes} * job.ranks_per_node;
  std::vector<std::string> out;
  for (const auto& account : AccountsOf(job.owner, job.project)) {
    const uint32_t most = view.quotas->OfAccount(account).devices;
    const auto known = view.snapshot.allowances.find(account);
    const auto* used_up =
        known != view.snapshot.allowances.end() && known->second.used_up ? &*known->second.used_up : nullptr;
    // Whole nodes may have more devices than the job has ranks.
    const bool too_few = most > 0 && (devices > most || job.needs.whole_nodes);
    if (too_few || (used_up != nullptr && !used_up->until)) out.push_back(account);
  }
  return out;
}

std::string WhyQuotaForbids(const Submission& submission, const ClusterView& view) {
  if (AccountsInTheWay(submission, view).empty()) return "";
  const QueuedJob job = EntryOf(NewJob(submission, JobId(), "", WallTime{}));
  Snapshot snapshot = view.snapshot;
  AllowNew(submission, *view.quotas, snapshot);
  if (WhyItCannotStart(snapshot, job) != ReasonCode::kQuota) return "";
  return ExplainWait(snapshot, {.job = job, .code = ReasonCode::kQuota});
}

}  // namespace imgd
