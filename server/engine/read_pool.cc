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

void ReadPool::Run(Reader reader) {
  while (true) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;  // every task that was taken is run, also at the end
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task(reader);
  }
}

}  // namespace imgd
