#include "trainer/data/fetch_pool.h"

#include <algorithm>

namespace imgd::data {

namespace {
constexpr size_t kMostTasks = 65'536;
}

FetchPool::~FetchPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    tasks_.clear();
  }
  wanted_.notify_all();
  for (auto& thread : threads_) thread.join();
}

bool FetchPool::Submit(const void* owner, std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (tasks_.size() >= kMostTasks) return false;
  tasks_.push_back({owner, std::move(task)});
  if (tasks_.size() > threads_.size() - running_.size() &&
      static_cast<int>(threads_.size()) < threads_wanted_)
    threads_.emplace_back([this] { Work(); });
  wanted_.notify_one();
  return true;
}

void FetchPool::Cancel(const void* owner) {
  std::unique_lock lock(mutex_);
  std::erase_if(tasks_, [&](const Task& task) { return task.owner == owner; });
  finished_.wait(lock, [&] { return std::ranges::find(running_, owner) == running_.end(); });
}

void FetchPool::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wanted_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (stopping_) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    running_.push_back(task.owner);
    lock.unlock();
    task.run();
    task.run = nullptr;
    lock.lock();
    running_.erase(std::ranges::find(running_, task.owner));
    finished_.notify_all();
  }
}

}  // namespace imgd::data
