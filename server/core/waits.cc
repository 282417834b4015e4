#include "server/core/waits.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace imgd {
namespace {

std::string_view VerbOf(AfterEnd when) {
  switch (when) {
    case AfterEnd::kOk:
      return "complete";
    case AfterEnd::kAny:
      return "end";
    case AfterEnd::kFailed:
      return "fail";
  }
  return "end";
}

std::string_view ConditionOf(AfterEnd when) {
  return when == AfterEnd::kFailed ? "if it failed" : "if it completed";
}

bool IsAwaited(const Dependency& dependency) { return !dependency.ended; }

/// "job 12 (a) to complete, job 13 (b) to end and 2 more".
std::string ExplainOpen(const JobRecord& job) {
  constexpr size_t kMostNamed = 3;
  std::string text;
  size_t open = 0;
  for (const auto& dependency : job.after) {
    if (!IsAwaited(dependency) || ++open > kMostNamed) continue;
    text += fmt::format("{}job {} ({}) to {}", open == 1 ? "" : ", ", dependency.job, dependency.name,
                        VerbOf(dependency.when));
  }
  if (open > kMostNamed) text += fmt::format(" and {} more", open - kMostNamed);
  return text;
}

}  // namespace

bool Fulfils(AfterEnd when, JobState ended) {
  if (!IsFinal(ended)) return false;
  if (when == AfterEnd::kAny) return true;
  return ended == (when == AfterEnd::kOk ? JobState::kCompleted : JobState::kFailed);
}

bool IsBroken(const Dependency& dependency) {
  return dependency.ended && !Fulfils(dependency.when, *dependency.ended);
}

std::string UtcText(WallTime time) {
  // Not by a time_point of the system's clock, which counts nanoseconds and ends in 2262.
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC",
                     fmt::gmtime(static_cast<std::time_t>(time.micros / 1'000'000)));
}

Reason ExplainHeldBack(const JobRecord& job, const SweepRecord* sweep) {
  std::string time;
  if (job.not_before_wall.micros != 0)
    time = fmt::format("is not to start before {}", UtcText(job.not_before_wall));
  if (std::ranges::any_of(job.after, IsAwaited)) {
    return {ReasonCode::kAfterJob,
            fmt::format("waits for {}{}{}", ExplainOpen(job), time.empty() ? "" : ", and ", time)};
  }
  if (!time.empty()) return {ReasonCode::kNotBefore, time};
  if (sweep == nullptr) return {ReasonCode::kSweepFull, "waits for a place in its sweep"};
  return {ReasonCode::kSweepFull,
          fmt::format("waits for its turn: {} of {} may run at once", sweep->max_running, SweepText(*sweep))};
}

std::string ExplainBroken(const JobRecord& job) {
  const auto broken = std::find_if(job.after.begin(), job.after.end(), IsBroken);
  if (broken == job.after.end()) return "";
  return fmt::format("job {} ({}) ended as {}, and this one was to start only {}", broken->job, broken->name,
                     NameOf(*broken->ended), ConditionOf(broken->when));
}

void HeldBack::Clear() { *this = HeldBack(); }

void HeldBack::AddSweep(const SweepRecord& sweep) { sweeps_[sweep.id].most = sweep.max_running; }

/// `waits`: for one of them at least. Who waits already is found by all of them that have not been taken.
void HeldBack::UpdateAfter(const JobRecord& job, bool waits) {
  if (waits == waiting_.contains(job.id)) return;
  if (waits) {
    for (const auto& dependency : job.after) {
      if (IsAwaited(dependency)) after_[dependency.job].insert(job.id);
    }
    waiting_.insert(job.id);
    return;
  }
  for (const auto& dependency : job.after) {
    const auto waiters = after_.find(dependency.job);
    if (waiters == after_.end()) continue;
    waiters->second.erase(job.id);
    if (waiters->second.empty()) after_.erase(waiters);
  }
  waiting_.erase(job.id);
}

void HeldBack::ForgetTime(JobId job) {
  const auto time = times_.find(job);
  if (time == times_.end()) return;
  timed_.erase({time->second, job});
  times_.erase(time);
}

/// A member has its place from when it may be in the queue until it ends or is paused.
void HeldBack::UpdatePlaces(const JobRecord& job, Places& places) {
  places.waits.erase(job.id);
  if (IsFinal(job.state)) {
    places.open.erase(job.id);
  } else {
    places.open.insert(job.id);
  }
  if (job.HoldsDevices()) {
    places.in.insert(job.id);
  } else if (job.state != JobState::kQueued) {
    places.in.erase(job.id);
  }
}

bool HeldBack::Update(const JobRecord& job) {
  const bool may_wait = job.state == JobState::kQueued || job.state == JobState::kPaused;
  const bool open = may_wait && std::ranges::any_of(job.after, IsAwaited);
  UpdateAfter(job, open);
  ForgetTime(job.id);
  const auto sweep = job.sweep == JobId() ? sweeps_.end() : sweeps_.find(job.sweep);
  if (sweep != sweeps_.end()) UpdatePlaces(job, sweep->second);
  if (!may_wait) return false;
  const bool held = open || std::ranges::any_of(job.after, IsBroken);
  if (held || job.state == JobState::kPaused) return false;
  if (job.not_before_wall.micros != 0) {
    times_[job.id] = job.not_before_wall;
    timed_.insert({job.not_before_wall, job.id});
    return false;
  }
  if (sweep == sweeps_.end() || sweep->second.most == 0 || sweep->second.in.contains(job.id)) return true;
  sweep->second.waits[job.id] = job.priority;
  return false;
}

JobId HeldBack::Admit(JobId id) {
  const auto sweep = sweeps_.find(id);
  if (sweep == sweeps_.end()) return {};
  Places& places = sweep->second;
  if (places.waits.empty() || places.in.size() >= places.most) return {};
  const auto first = std::ranges::max_element(places.waits, {}, [](const auto& one) { return one.second; });
  const JobId next = first->first;
  places.waits.erase(first);
  places.in.insert(next);
  return next;
}

bool HeldBack::IsOpen(JobId id) const {
  const auto sweep = sweeps_.find(id);
  return sweep != sweeps_.end() && !sweep->second.open.empty();
}

const std::set<JobId>& HeldBack::After(JobId job) const {
  static const std::set<JobId> kNobody;
  const auto waiters = after_.find(job);
  return waiters == after_.end() ? kNobody : waiters->second;
}

std::set<JobId> HeldBack::TakeAfter(JobId job) {
  const auto waiters = after_.find(job);
  if (waiters == after_.end()) return {};
  return std::move(after_.extract(waiters).mapped());
}

std::vector<JobId> HeldBack::Due(WallTime now) const {
  std::vector<JobId> out;
  for (const auto& [time, job] : timed_) {
    if (time > now) break;
    out.push_back(job);
  }
  return out;
}

}  // namespace imgd
