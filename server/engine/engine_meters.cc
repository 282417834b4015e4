#include "server/engine/engine_meters.h"

#include <algorithm>

namespace imgd {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

/// From what starts at once to what waits for days.
const Buckets kWaitBuckets = {1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 3 * 24 * 3600};
const Buckets kPassBuckets = {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3};
const Buckets kCommitBuckets = {0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10};

bool IsHeldFor(ReasonCode code) {
  return code == ReasonCode::kAfterJob || code == ReasonCode::kNotBefore || code == ReasonCode::kSweepFull;
}

double Seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

Tally UsedByAll(const std::vector<AccountUse>& accounts, WallTime now) {
  Tally sum;
  for (const auto& use : accounts) {
    // What a project has used its users have used too.
    if (!use.account.starts_with("user ")) continue;
    const Tally tally = use.used.In(Period::kTotal, now);
    sum.device_seconds += tally.device_seconds;
    sum.cost += tally.cost;
  }
  return sum;
}

}  // namespace

EngineMeters::EngineMeters() : queue_wait_(kWaitBuckets), scheduling_(kPassBuckets), commit_(kCommitBuckets) {
  for (const auto state : {JobState::kCompleted, JobState::kFailed, JobState::kCancelled})
    counts_.jobs_ended[state] = 0;
  // From zero on, or a rate would miss the first of each.
  using enum ReasonCode;
  for (const auto reason : {kRankKilled, kRankFailed, kRankStuck, kCollectiveBroken, kSamePlace, kStartFailed,
                            kNodeLost, kNodeDrained, kSpotNotice, kPreempted, kMovedByUser, kGrows})
    counts_.restarts[reason] = 0;
}

void EngineMeters::Begin(const std::map<JobId, JobRecord>& jobs, const std::vector<AccountUse>& accounts,
                         WallTime now) {
  for (const auto& [id, job] : jobs) {
    // Since when one waits that has run before is not in its record: it is not counted.
    if (job.state == JobState::kQueued && job.generation == Generation())
      waiting_[id] = {job.submitted, IsHeldFor(job.reason.code)};
  }
  used_ = UsedByAll(accounts, now);
}

void EngineMeters::OnEvent(const AppendEvent& event) {
  if (event.first) ++counts_.jobs_submitted;
  // What is heard of a job after its end is a row too.
  if (IsFinal(event.to) && (event.first || event.from != event.to)) ++counts_.jobs_ended[event.to];
  if (event.to == JobState::kQueued && !event.first && HoldsDevices(event.from))
    ++counts_.restarts[event.reason.code];
  if (event.to == JobState::kQueued) {
    NoteQueued(event);
  } else if (event.to == JobState::kStarting && event.from == JobState::kQueued) {
    NoteStarting(event);
  } else {
    waiting_.erase(event.job);
  }
}

void EngineMeters::NoteQueued(const AppendEvent& event) {
  const bool held = IsHeldFor(event.reason.code);
  const auto known = waiting_.find(event.job);
  const bool begins = event.first || event.from != JobState::kQueued;
  if (begins || (known != waiting_.end() && known->second.held)) {
    waiting_[event.job] = {event.time, held};
  } else if (known != waiting_.end()) {
    known->second.held = held;
  }
}

void EngineMeters::NoteStarting(const AppendEvent& event) {
  const auto waiting = waiting_.extract(event.job);
  if (waiting.empty()) return;
  const int64_t micros = waiting.mapped().held ? 0 : event.time.micros - waiting.mapped().since.micros;
  queue_wait_.Observe(static_cast<double>(std::max<int64_t>(micros, 0)) / 1e6);
}

void EngineMeters::OnDecision(const AppendDecision& decision) {
  // What its agent told of. That the node has gone then, which the scheduler tells of, is no other notice.
  if (decision.reason.code == ReasonCode::kSpotNotice && decision.actor.starts_with("agent:"))
    ++counts_.spot_notices;
  if (decision.reason.code == ReasonCode::kNodeLost) ++counts_.nodes_lost;
}

void EngineMeters::NoteScheduling(Duration took) { scheduling_.Observe(Seconds(took)); }
void EngineMeters::NoteCommit(Duration took) { commit_.Observe(Seconds(took)); }

/// Counters only grow, also when an old account is forgotten.
void EngineMeters::TakeUse(const std::vector<AccountUse>& accounts, WallTime now) {
  const Tally used = UsedByAll(accounts, now);
  counts_.device_seconds += std::max(used.device_seconds - used_.device_seconds, 0.0);
  counts_.spend += std::max(used.cost - used_.cost, 0.0);
  used_ = used;
}

EngineCounts EngineMeters::Counts(const std::vector<AccountUse>& accounts, WallTime now) {
  TakeUse(accounts, now);
  EngineCounts counts = counts_;
  counts.queue_wait = queue_wait_.Collect();
  counts.scheduling = scheduling_.Collect();
  counts.commit = commit_.Collect();
  return counts;
}

}  // namespace imgd
