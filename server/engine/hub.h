#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"

namespace imgd {

/// Wakes those who wait for news of a job. It carries no news: the woken read the databases again from where
/// they are, so that a slow one costs no memory and holds up nobody. Thread-safe; callbacks run on the thread
/// that calls Publish(), Expire() or Close(), without a lock held.
class Hub {
 public:
  using Token = std::pair<JobId, uint64_t>;

  /// Newest version known of the job; 0 when nothing was published yet.
  uint64_t Version(JobId job) const;
  /// Versions only grow; an older one is ignored.
  void Publish(JobId job, uint64_t version);

  /// Calls `wake` once: when the version is above `seen`, at `deadline`, or at Close(). Returns nothing, and
  /// will not call, when there is no need to wait.
  std::optional<Token> Wait(JobId job, uint64_t seen, Instant deadline, std::function<void()> wake);
  /// True when the callback has not been called and will not be.
  bool Cancel(const Token& token);

  /// Wakes those whose deadline has come.
  void Expire(Instant now);
  /// Wakes all; nobody waits from now on.
  void Close();
  bool closed() const;

 private:
  struct Waiter {
    uint64_t id;
    uint64_t seen;
    Instant deadline;
    std::function<void()> wake;
  };

  template <typename Due>
  void Wake(std::map<JobId, std::vector<Waiter>>::iterator topic, Due due,
            std::vector<std::function<void()>>& out);

  mutable std::mutex mutex_;  // guards all below
  std::unordered_map<uint64_t, uint64_t> versions_;
  std::map<JobId, std::vector<Waiter>> waiters_;
  uint64_t next_id_ = 1;
  bool closed_ = false;
};

}  // namespace imgd
