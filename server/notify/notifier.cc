#include "server/notify/notifier.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace imgd {

Notifier::Notifier(Couriers couriers, NotifierSettings settings, const Clock* clock,
                   std::function<void(std::vector<std::string>)> settled)
    : settings_(settings), clock_(clock), settled_(std::move(settled)) {
  for (auto& [name, courier] : couriers) lanes_[name].courier = std::move(courier);
}

Notifier::~Notifier() { Stop(); }

void Notifier::Start() {
  {
    const std::lock_guard lock(mutex_);
    started_ = true;
  }
  for (size_t i = 0; i < lanes_.size(); ++i) threads_.emplace_back([this] { Work(); });
}

void Notifier::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.request_stop();
  changed_.notify_all();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

void Notifier::Add(Notification notice) {
  {
    const std::lock_guard lock(mutex_);
    const auto lane = lanes_.find(notice.target);
    if (lane != lanes_.end()) {
      Insert(lane->second, {.notice = std::move(notice), .failed = !started_});
      changed_.notify_one();
      return;
    }
  }
  spdlog::error("notice={} target={} msg=\"not delivered: the configuration has no such target any more\"",
                notice.id, notice.target);
  settled_({notice.id});
}

void Notifier::Insert(Lane& lane, Waiting waiting) {
  auto place = lane.waiting.end();
  if (!waiting.failed) {
    const auto first = lane.waiting.begin() + (lane.busy ? 1 : 0);
    place = std::partition_point(first, place, [](const Waiting& other) { return !other.failed; });
  }
  lane.waiting.insert(place, std::move(waiting));
}

void Notifier::Drop(JobId job) {
  std::vector<std::string> gone;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [name, lane] : lanes_) {
      auto first = lane.waiting.begin();
      if (lane.busy && (first++)->notice.job == job) lane.last_try = true;
      const auto its = std::stable_partition(
          first, lane.waiting.end(), [&](const Waiting& waiting) { return waiting.notice.job != job; });
      for (auto one = its; one != lane.waiting.end(); ++one) gone.push_back(std::move(one->notice.id));
      lane.waiting.erase(its, lane.waiting.end());
    }
  }
  if (!gone.empty()) settled_(std::move(gone));
}

void Notifier::NoteDropped(const std::string& target) {
  const std::lock_guard lock(mutex_);
  const auto lane = lanes_.find(target);
  if (lane != lanes_.end()) ++lane->second.counts.dropped;
}

std::map<std::string, NotifyCounts> Notifier::Counts() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, NotifyCounts> out;
  for (const auto& [name, lane] : lanes_) {
    out[name] = lane.counts;
    out[name].pending = lane.waiting.size();
  }
  return out;
}

Notifier::Lane* Notifier::ReadyLane(Instant& next) {
  const Instant now = clock_->Now();
  Lane* ready = nullptr;
  for (auto& [name, lane] : lanes_) {
    if (lane.busy || lane.waiting.empty()) continue;
    if (lane.rests_until > now) {
      next = std::min(next, lane.rests_until);
    } else if (ready == nullptr ||
               lane.waiting.front().notice.created < ready->waiting.front().notice.created) {
      ready = &lane;
    }
  }
  return ready;
}

void Notifier::Work() {
  constexpr auto kLongest = std::chrono::minutes(1);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Instant next = clock_->Now() + kLongest;
    Lane* const lane = ReadyLane(next);
    if (lane == nullptr) {
      changed_.wait_until(lock, next);
      continue;
    }
    lane->busy = true;
    const Notification notice = lane->waiting.front().notice;
    lock.unlock();
    const Status delivered = lane->courier->Deliver(notice, stop_.get_token());
    lock.lock();
    lane->busy = false;
    if (stopping_ && !delivered) return;  // broken off, perhaps; it is tried after the next start
    auto settled = Take(notice.target, *lane, delivered);
    changed_.notify_one();
    lock.unlock();
    if (!settled.empty()) settled_(std::move(settled));
    lock.lock();
  }
}

std::vector<std::string> Notifier::Take(const std::string& name, Lane& lane, const Status& delivered) {
  Notification notice = std::move(lane.waiting.front().notice);
  lane.waiting.pop_front();
  const bool last_try = std::exchange(lane.last_try, false);
  if (delivered) {
    ++lane.counts.sent;
    lane.failures = 0;
    spdlog::info("job={} notice={} target={} msg=\"delivered\"", notice.job, notice.id, name);
    return {std::move(notice.id)};
  }
  if (delivered.error().code == ErrorCode::kInvalidArgument) {
    ++lane.counts.given_up;
    spdlog::warn("job={} notice={} target={} msg=\"given up, it can never be delivered: {}\"", notice.job,
                 notice.id, name, delivered.error().message);
    return {std::move(notice.id)};
  }
  ++lane.counts.failed_tries;
  const int doublings = std::min(lane.failures++, 20);
  const Duration rest = std::min(settings_.first_rest * (int64_t{1} << doublings), settings_.most_rest);
  lane.rests_until = clock_->Now() + rest;
  const std::string& why = delivered.error().message;
  if (last_try) return {std::move(notice.id)};
  spdlog::warn("job={} notice={} target={} failures={} msg=\"not delivered, tried again later: {}\"",
               notice.job, notice.id, name, lane.failures, why);
  Insert(lane, {.notice = std::move(notice), .failed = true});
  return GiveUpOld(name, lane, why);
}

std::vector<std::string> Notifier::GiveUpOld(const std::string& name, Lane& lane, const std::string& why) {
  const auto kept_for = std::chrono::duration_cast<std::chrono::microseconds>(settings_.give_up_after);
  const WallTime oldest{clock_->Wall().micros - kept_for.count()};
  std::vector<std::string> gone;
  std::erase_if(lane.waiting, [&](const Waiting& waiting) {
    const Notification& notice = waiting.notice;
    if (notice.created > oldest) return false;
    spdlog::error("job={} notice={} target={} msg=\"given up, it is too old; its target failed last by: {}\"",
                  notice.job, notice.id, name, why);
    gone.push_back(notice.id);
    return true;
  });
  lane.counts.given_up += gone.size();
  return gone;
}

}  // namespace imgd
