#include "server/core/job_queue.h"

#include <algorithm>
#include <iterator>
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
    Sort(arrived_);
    const auto old = static_cast<std::ptrdiff_t>(jobs_.size());
    jobs_.insert(jobs_.end(), std::make_move_iterator(arrived_.begin()),
                 std::make_move_iterator(arrived_.end()));
    std::inplace_merge(jobs_.begin(), jobs_.begin() + old, jobs_.end(), Earlier);
    arrived_.clear();
  }
  return jobs_;
}

void JobQueue::Erase(const QueuedJob& key) {
  const auto arrived = std::find_if(arrived_.rbegin(), arrived_.rend(),
                                    [&key](const QueuedJob& job) { return job.id == key.id; });
  if (arrived == arrived_.rend()) {
    gone_.push_back(key);
  } else {
    std::swap(*arrived, arrived_.back());
    arrived_.pop_back();
  }
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
