#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/error.h"
#include "server/store/reader.h"

namespace imgd {

/// A few threads that read the databases for those who ask, each with connections of its own. Thread-safe.
class ReadPool {
 public:
  using Task = std::function<void(Reader&)>;

  /// Where what may take seconds waits for its turn.
  enum class Lane {
    kWork,     ///< what has much to do: searches, sweeps, sums
    kFolders,  ///< what looks into checkpoints' folders, of which any may hang
  };

  /// Errors: those of opening the databases.
  static Result<std::unique_ptr<ReadPool>> Start(const std::filesystem::path& folder, int threads);
  ~ReadPool();

  /// Runs the task soon. Those who call this hold at most one task each, so that the queue is bounded by
  /// them.
  void Post(Task task);
  /// The same, but refuses (false) when very many wait already.
  bool TryPost(Task task);
  /// For what may take seconds: of each lane one runs at a time, so that the others' threads are free.
  bool TryPostSlow(Lane lane, Task task);

 private:
  /// What waits in a lane, and whether one of it runs.
  struct Slow {
    std::deque<Task> tasks;
    bool runs = false;
  };

  ReadPool() = default;
  void Run(Reader reader);
  /// The next task, and the lane that it is of, if any; nothing when there will be none.
  std::optional<std::pair<Task, Slow*>> Next();

  static constexpr size_t kMostWaiting = 4096;

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Task> tasks_;    // guarded by mutex_
  std::array<Slow, 2> slow_;  // by Lane; guarded by mutex_
  bool stopping_ = false;     // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace imgd
