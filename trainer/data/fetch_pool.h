#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace imgd::data {

/// Threads that fetch ahead, in the order of asking. They start with the first task. All calls may come from
/// any thread but its own.
class FetchPool {
 public:
  explicit FetchPool(int threads) : threads_wanted_(threads) {}
  /// Drops what has not begun, and waits for the rest.
  ~FetchPool();
  FetchPool(const FetchPool&) = delete;
  FetchPool& operator=(const FetchPool&) = delete;

  /// False, and nothing is done, when very many tasks wait already.
  bool Submit(const void* owner, std::function<void()> task);
  /// Drops the owner's tasks that have not begun, and waits for those that have.
  void Cancel(const void* owner);

 private:
  struct Task {
    const void* owner;
    std::function<void()> run;
  };
  void Work();

  const int threads_wanted_;
  std::mutex mutex_;  ///< guards all below
  std::condition_variable wanted_;
  std::condition_variable finished_;
  std::deque<Task> tasks_;
  std::vector<const void*> running_;  ///< owners
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace imgd::data
