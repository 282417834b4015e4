#include "server/core/ranking.h"

#include <algorithm>

namespace imgd {

std::string UserOf(const JobRecord& job) { return "user " + job.owner; }
std::string ProjectOf(const JobRecord& job) { return "project " + job.project; }

AccountNames AccountsOf(const std::string& owner, const std::string& project) {
  AccountNames accounts = {"user " + owner};
  if (!project.empty()) accounts.push_back("project " + project);
  return accounts;
}
AccountNames AccountsOf(const JobRecord& job) { return AccountsOf(job.owner, job.project); }

WallTime WaitsSince(const JobRecord& job) { return {job.submitted.micros + job.held_ms * 1000}; }

int StepsOfAge(WallTime since, Duration aging, WallTime at) {
  const int64_t step = std::chrono::duration_cast<std::chrono::microseconds>(aging).count();
  if (step <= 0 || at <= since) return 0;
  // No more than there are steps between the lowest priority and the highest.
  constexpr int64_t kMost = 2000;
  return static_cast<int>(std::min((at.micros - since.micros) / step, kMost));
}

QueuedJob Ranking::KeyOf(const JobRecord& job) const {
  QueuedJob key{.priority = job.priority, .id = job.id};
  Rank(job, key);
  return key;
}

int Ranking::PriorityOfRun(const JobRecord& job) const {
  // The clock may have been ahead when it started.
  return job.priority + StepsOfAge(WaitsSince(job), aging, std::min(job.started, at));
}

void Ranking::Rank(const JobRecord& job, QueuedJob& entry) const {
  const auto turn_of = [this](const std::string& account) {
    const auto turn = turns.find(account);
    return turn == turns.end() ? 0 : turn->second;
  };
  entry.waits_since = WaitsSince(job);
  entry.aged = StepsOfAge(entry.waits_since, aging, at);
  entry.turn = turns.empty() ? Turn{} : Turn{turn_of(ProjectOf(job)), turn_of(UserOf(job))};
}

}  // namespace imgd
