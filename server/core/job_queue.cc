#include "server/core/job_queue.h"

#include <algorithm>
#include <utility>

namespace imgd {
namespace {

bool Earlier(const QueuedJob& a, const QueuedJob& b) { return a.Before(b); }

}  // namespace

void JobQueue::Sort(std::vector<QueuedJob>& jobs) { std::sort(jobs.begin(), jobs.end(), Earlier); }

const std::vector<QueuedJob>& JobQueue::InOrder() const {
  if (!gone_.empty()) {
    Sort(gone_);
    auto key = gone_.begin();
    auto kept = std::lower_bound(jobs_.begin(), jobs_.end(), *key, Earlier);
    for (auto job = kept; job != jobs_.end(); ++job) {
      if (key != gone_.end() && job->id == key->id) {
        ++key;
      } else {
        *kept++ = std::move(*job);
      }
    }
    jobs_.erase(kept, jobs_.end());
    gone_.clear();
  }
  if (!arrived_.empty()) {
    const auto old = static_cast<std::ptrdiff_t>(jobs_.size());
    for (auto& [id, job] : arrived_) jobs_.push_back(std::move(job));
    std::sort(jobs_.begin() + old, jobs_.end(), Earlier);
    std::inplace_merge(jobs_.begin(), jobs_.begin() + old, jobs_.end(), Earlier);
    arrived_.clear();
  }
  return jobs_;
}

void JobQueue::Erase(const QueuedJob& key) {
  if (arrived_.erase(key.id) == 0) gone_.push_back(key);
}

void JobQueue::Clear() {
  jobs_.clear();
  arrived_.clear();
  gone_.clear();
}

QueuedJob& JobQueue::At(size_t place) {
  InOrder();
  return jobs_[place];
}

}  // namespace imgd
