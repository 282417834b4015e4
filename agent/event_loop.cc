#include "agent/event_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace imgd {

Result<std::unique_ptr<EventLoop>> EventLoop::Create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return FailErrno(errno, "cannot make an epoll descriptor");
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll)));
}

Status EventLoop::Watch(int fd, uint32_t events, FdHandler handler) {
  const uint64_t id = next_id_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return FailErrno(errno, fmt::format("cannot wait for descriptor {}", fd));
  }
  watched_[id] = {fd, std::make_shared<FdHandler>(std::move(handler))};
  id_of_fd_[fd] = id;
  return {};
}

void EventLoop::Modify(int fd, uint32_t events) {
  const auto it = id_of_fd_.find(fd);
  if (it == id_of_fd_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = it->second;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::Unwatch(int fd) {
  const auto it = id_of_fd_.find(fd);
  if (it == id_of_fd_.end()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watched_.erase(it->second);
  id_of_fd_.erase(it);
}

EventLoop::TimerId EventLoop::After(Duration delay, std::function<void()> handler) {
  const TimerId id = next_id_++;
  const Instant when = std::chrono::steady_clock::now() + delay;
  timers_[{when, id}] = std::move(handler);
  time_of_timer_[id] = when;
  return id;
}

void EventLoop::Cancel(TimerId id) {
  const auto it = time_of_timer_.find(id);
  if (it == time_of_timer_.end()) return;
  timers_.erase({it->second, id});
  time_of_timer_.erase(it);
}

int EventLoop::WaitMs(Duration max_wait) const {
  Duration wait = max_wait;
  if (!timers_.empty()) {
    wait = std::min(wait, timers_.begin()->first.first - std::chrono::steady_clock::now());
  }
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 60'000));
}

void EventLoop::RunTimers() {
  // Only those that are due now: a timer that sets itself again must not keep the descriptors waiting.
  const Instant now = std::chrono::steady_clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    auto node = timers_.extract(timers_.begin());
    time_of_timer_.erase(node.key().second);
    node.mapped()();
  }
}

void EventLoop::RunOnce(Duration max_wait) {
  std::array<epoll_event, 64> events{};
  const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), WaitMs(max_wait));
  for (int i = 0; i < n; ++i) {
    const auto& event = events[static_cast<size_t>(i)];
    const auto it = watched_.find(event.data.u64);
    if (it == watched_.end()) continue;
    const auto handler = it->second.handler;  // lives on if it unwatches itself
    (*handler)(event.events);
  }
  RunTimers();
}

void EventLoop::Run() {
  while (!stopped_) RunOnce(std::chrono::minutes(1));
}

}  // namespace imgd
