#include "server/engine/hub.h"

#include <algorithm>

namespace imgd {

uint64_t Hub::Version(JobId job) const {
  const std::lock_guard lock(mutex_);
  const auto version = versions_.find(job.value());
  return version == versions_.end() ? 0 : version->second;
}

bool Hub::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

template <typename Due>
void Hub::Wake(std::map<JobId, std::vector<Waiter>>::iterator topic, Due due,
               std::vector<std::function<void()>>& out) {
  auto& waiters = topic->second;
  const auto first =
      std::stable_partition(waiters.begin(), waiters.end(), [&](const Waiter& w) { return !due(w); });
  for (auto waiter = first; waiter != waiters.end(); ++waiter) out.push_back(std::move(waiter->wake));
  waiters.erase(first, waiters.end());
}

void Hub::Publish(JobId job, uint64_t version) {
  std::vector<std::function<void()>> woken;
  {
    const std::lock_guard lock(mutex_);
    auto& known = versions_[job.value()];
    if (version <= known) return;
    known = version;
    const auto topic = waiters_.find(job);
    if (topic == waiters_.end()) return;
    Wake(
        topic, [version](const Waiter& waiter) { return waiter.seen < version; }, woken);
    if (topic->second.empty()) waiters_.erase(topic);
  }
  for (const auto& wake : woken) wake();
}

std::optional<Hub::Token> Hub::Wait(JobId job, uint64_t seen, Instant deadline, std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  const auto version = versions_.find(job.value());
  if (closed_ || (version != versions_.end() && version->second > seen)) return std::nullopt;
  const Token token{job, next_id_++};
  waiters_[job].push_back({token.second, seen, deadline, std::move(wake)});
  return token;
}

bool Hub::Cancel(const Token& token) {
  const std::lock_guard lock(mutex_);
  const auto topic = waiters_.find(token.first);
  if (topic == waiters_.end()) return false;
  const auto erased =
      std::erase_if(topic->second, [&](const Waiter& waiter) { return waiter.id == token.second; });
  if (topic->second.empty()) waiters_.erase(topic);
  return erased > 0;
}

void Hub::Expire(Instant now) {
  std::vector<std::function<void()>> woken;
  {
    const std::lock_guard lock(mutex_);
    for (auto topic = waiters_.begin(); topic != waiters_.end();) {
      Wake(
          topic, [now](const Waiter& waiter) { return waiter.deadline <= now; }, woken);
      topic = topic->second.empty() ? waiters_.erase(topic) : std::next(topic);
    }
  }
  for (const auto& wake : woken) wake();
}

void Hub::Close() {
  std::vector<std::function<void()>> woken;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (auto topic = waiters_.begin(); topic != waiters_.end(); ++topic) {
      Wake(
          topic, [](const Waiter&) { return true; }, woken);
    }
    waiters_.clear();
  }
  for (const auto& wake : woken) wake();
}

}  // namespace imgd
