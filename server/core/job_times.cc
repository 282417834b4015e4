// How long a job's starts, stops and waits may take.
#include <algorithm>
#include <array>
#include <limits>

#include "server/core/job.h"

namespace imgd {
namespace {

/// For what ranks and agents have to say at the end.
constexpr Duration kForReports = std::chrono::seconds(5);

/// What passed while the daemon was away counts as held, but no more than this: nobody can tell whether the
/// wall clock, by which alone it is known, was set meanwhile.
constexpr int64_t kMostAwayUs = 3600LL * 1'000'000;

}  // namespace

void RestoreHeld(JobRecord& job, Now now) {
  Run& run = job.run;
  run.held_since = run.charged_at = run.kept_since = now.steady;
  if (!job.HoldsDevices()) return;
  // One that began before imgd noted what it had counted: all of it is counted at its end.
  const bool noted = run.charged.micros != 0;
  const int64_t away_us = now.wall.micros - (noted ? run.charged : job.started).micros;
  const std::chrono::microseconds away(
      std::clamp<int64_t>(away_us, 0, noted ? kMostAwayUs : std::numeric_limits<int64_t>::max()));
  run.charged_at = now.steady - away;
  run.held_since = run.kept_since = run.charged_at - std::chrono::milliseconds(run.charged_ms);
  if (job.checkpoints.empty() || job.checkpoints.front().generation != job.generation) return;
  const std::chrono::microseconds kept_for(now.wall.micros - job.checkpoints.front().accepted.micros);
  run.kept_since = std::clamp<Instant>(now.steady - kept_for, run.held_since, now.steady);
}

std::optional<Duration> TimeLeft(const JobRecord& job, Instant now) {
  if (job.time_limit_ms == 0) return std::nullopt;
  const Duration held = std::chrono::milliseconds(job.held_ms) + (now - job.run.held_since);
  return std::max(Duration(std::chrono::milliseconds(job.time_limit_ms)) - held, Duration::zero());
}

Duration TimeToStop(const JobRecord& job) {
  // The agent gives the ranks the grace for their checkpoint, and as long again to end.
  const Duration grace = std::chrono::milliseconds(job.grace_ms);
  return std::max(2 * grace, grace + kTimeForCheckpoint);
}

int64_t GraceForCheckpoint(const JobRecord& job) {
  using std::chrono::milliseconds;
  // With as long again to end it is within TimeToStop().
  if (GivesBack(job.run.stop))
    return std::max<int64_t>(job.grace_ms,
                             std::chrono::duration_cast<milliseconds>(kTimeForCheckpoint / 2).count());
  if (!job.run.checkpoint_first) return job.grace_ms;
  return std::chrono::duration_cast<milliseconds>(TimeForLastCheckpoint(job)).count();
}

Duration TimeForLastCheckpoint(const JobRecord& job) {
  if (job.run.stop == StopFor::kTimeLimit) return kTimeForCheckpoint;
  return std::max<Duration>(std::chrono::milliseconds(job.grace_ms), kTimeForCheckpoint);
}

int64_t GraceWithin(int64_t grace_ms, Duration left) {
  constexpr int64_t kLeast = 1000;
  const auto half = std::chrono::duration_cast<std::chrono::milliseconds>((left - kForReports) / 2).count();
  return std::clamp<int64_t>(half, std::min(kLeast, grace_ms), grace_ms);
}

std::optional<Duration> LongestStart(const JobRecord& job) {
  if (job.time_limit_ms == 0) return std::nullopt;
  // A program is told to end, and has no checkpoint that is waited for.
  const Duration to_end =
      job.Trains() ? TimeToStop(job) : 2 * std::chrono::milliseconds(job.grace_ms) + kForReports;
  return std::chrono::milliseconds(job.time_limit_ms - job.held_ms) + to_end;
}

uint32_t FailuresInRow(const JobRecord& job) { return job.run.progressed ? 1 : job.failures_in_row + 1; }

Duration BackoffAfter(uint32_t failures_in_row) {
  constexpr std::array<int, 6> kSeconds = {1, 2, 4, 8, 16, 32};
  if (failures_in_row == 0) return Duration::zero();
  return std::chrono::seconds(failures_in_row <= kSeconds.size() ? kSeconds[failures_in_row - 1] : 60);
}

bool TriesElsewhere(ReasonCode reason) {
  return reason == ReasonCode::kBackoff || reason == ReasonCode::kResumedByUser;
}

bool KeepsPlace(const JobRecord& job) {
  return GivesBack(job.run.stop) || BackoffAfter(job.failures_in_row) <= std::chrono::seconds(30);
}

}  // namespace imgd
