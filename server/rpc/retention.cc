#include "server/rpc/retention.h"

#include <algorithm>

#include "server/retention/checkpoint_survey.h"

namespace imgd {
namespace {

/// Of those that would go, so many are named.
constexpr int kMostListed = 100;

struct Limits {
  Duration kept_for{};
  uint64_t total_bytes = 0;
};

void Describe(const char* what, const Limits& limits, uint64_t bytes, v1::RetainedKind& out) {
  out.set_what(what);
  out.set_kept_for_ms(std::chrono::duration_cast<std::chrono::milliseconds>(limits.kept_for).count());
  out.set_total_bytes(limits.total_bytes);
  out.set_bytes(bytes);
}

/// As engine_retention.cc goes about it. `size_of` gives a job's bytes; 0: it has nothing.
template <typename SizeOf>
Status FillGoing(const std::vector<JobEnd>& jobs, const Limits& limits, WallTime now, SizeOf size_of,
                 v1::RetainedKind& out) {
  const int64_t kept_us = std::chrono::duration_cast<std::chrono::microseconds>(limits.kept_for).count();
  uint64_t left = out.bytes();
  for (const auto& job : jobs) {
    const bool is_old = kept_us > 0 && job.at.micros < now.micros - kept_us;
    const bool too_much = limits.total_bytes > 0 && left > limits.total_bytes;
    if (!job.ended || (!is_old && !too_much)) break;
    IMGD_ASSIGN(const uint64_t bytes, size_of(job.id));
    if (bytes == 0) continue;
    left -= std::min(left, bytes);
    out.set_going_jobs(out.going_jobs() + 1);
    out.set_going_bytes(out.going_bytes() + bytes);
    if (out.job_ids_size() < kMostListed) out.add_job_ids(job.id.value());
  }
  return {};
}

Status FillCheckpoints(const PruneRule& rule, WallTime now, Reader& reader, v1::ShowRetentionResponse& out) {
  IMGD_ASSIGN(const auto survey, SurveyCheckpoints(reader));
  IMGD_ASSIGN(const auto plan, PlanPruneOf(survey, rule, now, reader));
  out.set_unseen_jobs(survey.unseen);
  auto& kind = *out.add_kinds();
  Describe("checkpoints", {rule.kept_for, rule.total_bytes}, survey.ended_bytes + survey.other_bytes, kind);
  JobId last;
  for (const auto& each : plan) {
    kind.set_going_bytes(kind.going_bytes() + each.checkpoint.size_bytes);
    if (kind.folders_size() < kMostListed) kind.add_folders(each.checkpoint.ref.path.native());
    if (each.job == last) continue;
    last = each.job;
    kind.set_going_jobs(kind.going_jobs() + 1);
    if (kind.job_ids_size() < kMostListed) kind.add_job_ids(each.job.value());
  }
  return {};
}

}  // namespace

Status FillRetention(const RetentionRules& rules, WallTime now, Reader& reader,
                     v1::ShowRetentionResponse& out) {
  IMGD_ASSIGN(const auto jobs, reader.JobEnds());
  IMGD_ASSIGN(const auto sizes, reader.LogSizes(std::max<uint64_t>(rules.log_kept_bytes / 2, 1)));
  uint64_t log_bytes = 0;
  for (const auto& [job, bytes] : sizes) log_bytes += bytes;
  const Limits logs{rules.logs_kept_for, rules.logs_total_bytes};
  Describe("logs", logs, log_bytes, *out.add_kinds());
  const auto log_size = [&sizes](JobId job) -> Result<uint64_t> {
    const auto found = sizes.find(job);
    return found == sizes.end() ? 0 : found->second;
  };
  IMGD_TRY(FillGoing(jobs, logs, now, log_size, *out.mutable_kinds(0)));

  IMGD_ASSIGN(const uint64_t metric_bytes, reader.UsedMetricsBytes());
  const Limits metrics{rules.metrics_kept_for, rules.metrics_total_bytes};
  Describe("metrics", metrics, metric_bytes, *out.add_kinds());
  const auto figures = [&reader](JobId job) { return reader.FigureBytes(job); };
  IMGD_TRY(FillGoing(jobs, metrics, now, figures, *out.mutable_kinds(1)));
  return FillCheckpoints(rules.checkpoints, now, reader, out);
}

}  // namespace imgd
