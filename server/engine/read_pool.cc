#include "server/engine/read_pool.h"

namespace imgd {

Result<std::unique_ptr<ReadPool>> ReadPool::Start(const std::filesystem::path& folder, int threads) {
  std::unique_ptr<ReadPool> pool(new ReadPool);
  for (int i = 0; i < threads; ++i) {
    IMGD_ASSIGN(auto reader, Reader::Open(folder));
    pool->threads_.emplace_back(
        [&pool = *pool, reader = std::move(reader)]() mutable { pool.Run(std::move(reader)); });
  }
  return pool;
}

ReadPool::~ReadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void ReadPool::Post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  ready_.notify_one();
}

bool ReadPool::TryPost(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (tasks_.size() >= kMostWaiting) return false;
    tasks_.push_back(std::move(task));
  }
  ready_.notify_one();
  return true;
}

bool ReadPool::TryPostSlow(Task task) {
  constexpr size_t kMostSlow = 64;
  {
    const std::lock_guard lock(mutex_);
    if (slow_.size() >= kMostSlow) return false;
    slow_.push_back(std::move(task));
  }
  ready_.notify_one();
  return true;
}

std::optional<std::pair<ReadPool::Task, bool>> ReadPool::Next() {
  const auto take = [](std::deque<Task>& from) {
    Task task = std::move(from.front());
    from.pop_front();
    return task;
  };
  std::unique_lock lock(mutex_);
  const auto has_slow = [this] { return !slow_.empty() && !slow_runs_; };
  ready_.wait(lock, [&] { return stopping_ || !tasks_.empty() || has_slow(); });
  if (has_slow()) {
    slow_runs_ = true;
    return std::pair(take(slow_), true);
  }
  if (!tasks_.empty()) return std::pair(take(tasks_), false);
  return std::nullopt;  // every task that was taken is run, also at the end
}

void ReadPool::Run(Reader reader) {
  while (auto next = Next()) {
    auto& [task, is_slow] = *next;
    task(reader);
    if (!is_slow) continue;
    task = nullptr;
    {
      const std::lock_guard lock(mutex_);
      slow_runs_ = false;
    }
    ready_.notify_one();
  }
}

}  // namespace imgd
