#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "common/clock.h"
#include "server/retention/checkpoint_survey.h"

namespace imgd {

/// What was to be removed and could not be.
struct PruneFailures {
  uint64_t count = 0;
  std::string first;  ///< why, for the first of them
  bool operator==(const PruneFailures&) const = default;
};

/// Removes the checkpoints of jobs that ended, by a rule, on a thread of its own: at its start, when the rule
/// changes, and every hour. Thread-safe.
class CheckpointKeeper {
 public:
  /// `tell` gets a sentence of what was removed and what could not be, each time that it is news. Errors:
  /// those of opening the databases in `folder`.
  static Result<std::unique_ptr<CheckpointKeeper>> Start(const std::filesystem::path& folder,
                                                         const Clock* clock, PruneRule rule,
                                                         std::function<void(std::string)> tell);
  ~CheckpointKeeper();

  void SetRule(PruneRule rule);

 private:
  CheckpointKeeper(Reader reader, const Clock* clock, PruneRule rule, std::function<void(std::string)> tell)
      : reader_(std::move(reader)), clock_(clock), tell_(std::move(tell)), rule_(rule) {}
  void Run();
  void RemoveBy(const PruneRule& rule);
  bool IsEnding();

  Reader reader_;  ///< of the thread
  const Clock* clock_;
  std::function<void(std::string)> tell_;
  PruneFailures told_;  ///< of the thread
  std::mutex mutex_;
  std::condition_variable changed_;
  PruneRule rule_;    // guarded by mutex_
  bool due_ = true;   // guarded by mutex_
  bool end_ = false;  // guarded by mutex_
  std::thread thread_;
};

/// "5 checkpoints (1.2 GB) of 2 jobs that had ended were removed: ...": what was removed and what could not
/// be, in words for people; one of the two is not empty.
std::string TextOfPruned(const std::vector<PrunedCheckpoint>& removed, const PruneFailures& failures);

/// Whether people are told of it: what can't be removed is tried each hour, and told again once it is
/// something else.
bool IsNews(const std::vector<PrunedCheckpoint>& removed, const PruneFailures& failures,
            const PruneFailures& told);

}  // namespace imgd
