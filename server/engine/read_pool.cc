#include "server/engine/read_pool.h"

#include <algorithm>

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

bool ReadPool::TryPostSlow(Lane lane, Task task) {
  constexpr size_t kMostSlow = 64;
  {
    const std::lock_guard lock(mutex_);
    auto& tasks = slow_[static_cast<size_t>(lane)].tasks;
    if (tasks.size() >= kMostSlow) return false;
    tasks.push_back(std::move(task));
  }
  ready_.notify_one();
  return true;
}

std::optional<std::pair<ReadPool::Task, ReadPool::Slow*>> ReadPool::Next() {
  const auto take = [](std::deque<Task>& from) {
    Task task = std::move(from.front());
    from.pop_front();
    return task;
  };
  std::unique_lock lock(mutex_);
  const auto free_lane = [this] {
    return std::ranges::find_if(slow_, [](const Slow& lane) { return !lane.tasks.empty() && !lane.runs; });
  };
  ready_.wait(lock, [&] { return stopping_ || !tasks_.empty() || free_lane() != slow_.end(); });
  if (auto* const lane = free_lane(); lane != slow_.end()) {
    lane->runs = true;
    return std::pair(take(lane->tasks), lane);
  }
  if (!tasks_.empty()) return std::pair<Task, Slow*>(take(tasks_), nullptr);
  return std::nullopt;  // every task that was taken is run, also at the end
}

void ReadPool::Run(Reader reader) {
  while (auto next = Next()) {
    auto& [task, lane] = *next;
    task(reader);
    if (lane == nullptr) continue;
    task = nullptr;
    {
      const std::lock_guard lock(mutex_);
      lane->runs = false;
    }
    ready_.notify_one();
  }
}

}  // namespace imgd
