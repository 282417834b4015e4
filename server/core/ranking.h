#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/core/scheduler.h"
#include "server/core/types.h"

/// By what the queue is in order.
namespace imgd {

/// Those that its devices count for: "user ada", "project vision".
AccountNames AccountsOf(const JobRecord& job);
AccountNames AccountsOf(const std::string& owner, const std::string& project);
/// Those whose turns it has; a job without a project counts for kNoProject.
std::string UserOf(const JobRecord& job);
std::string ProjectOf(const JobRecord& job);
inline constexpr const char* kNoProject = "project ";

/// A value for each account of jobs, looked up once for each place of their names.
template <typename Value>
class ByAccounts {
 public:
  /// `look(account)`; of those without a project also for ProjectOf() them.
  explicit ByAccounts(std::function<Value(const std::string& account)> look) : look_(std::move(look)) {}
  /// Of its user, and of its project. `accounts`: AccountsOf() it; they must outlive this.
  const std::array<Value, 2>& Of(const JobRecord& job, const Shared<AccountNames>& accounts) {
    const auto [known, is_new] = known_.try_emplace(accounts.place());
    if (is_new) known->second = {look_(UserOf(job)), look_(ProjectOf(job))};
    return known->second;
  }

 private:
  std::function<Value(const std::string& account)> look_;
  std::map<const AccountNames*, std::array<Value, 2>> known_;
};

/// Since when the job waits, if it had not held devices between: what it held them for is no wait.
WallTime WaitsSince(const JobRecord& job);

/// Steps of priority that a job has gained which waits since then: one for each `aging`; zero `aging`: none.
int StepsOfAge(WallTime since, Duration aging, WallTime at);

/// What the order of a queue depends on besides its jobs.
struct Ranking {
  std::map<std::string, uint32_t> turns;  ///< of users and projects ("user ada"); others have turn 0
  Duration aging{};                       ///< as in StepsOfAge()
  WallTime at;

  /// As much of a queued job as its place depends on.
  QueuedJob KeyOf(const JobRecord& job) const;
  /// The same for an entry of the queue.
  void Rank(const JobRecord& job, QueuedJob& entry) const;
  /// With what it had aged by when it started: so who was preempted does not change places with who did it.
  int PriorityOfRun(const JobRecord& job) const;
};

}  // namespace imgd
