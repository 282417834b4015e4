#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "server/core/scheduler.h"

namespace imgd {

/// The jobs that wait, in order. What comes and goes is put in its place when somebody next looks, all at
/// once: of a burst of submissions each would move all that wait behind it.
class JobQueue {
 public:
  /// By QueuedJob::Before(); good until the next change. Cost after a change: O(jobs).
  const std::vector<QueuedJob>& InOrder() const;
  /// One that is not in it.
  void Insert(QueuedJob job) { arrived_.emplace(job.id, std::move(job)); }
  /// The one with this key, of which only what the order depends on is looked at; it must be in it.
  void Erase(const QueuedJob& key);
  void Clear();

  /// The job at this place of InOrder(), to be changed in what the order does not depend on.
  QueuedJob& At(size_t place);
  /// Calls `rank(job)` for each, by which it may get another place: it returns whether it did.
  template <typename Rank>
  void RankAnew(const Rank& rank) {
    InOrder();
    bool change = false;
    for (auto& job : jobs_) change = rank(job) || change;
    if (change) Sort(jobs_);
  }

 private:
  static void Sort(std::vector<QueuedJob>& jobs);

  // What InOrder() brings up to date.
  mutable std::vector<QueuedJob> jobs_;
  mutable std::map<JobId, QueuedJob> arrived_;  ///< not yet in jobs_
  mutable std::vector<QueuedJob> gone_;         ///< keys of those that are still in jobs_
};

}  // namespace imgd
