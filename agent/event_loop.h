#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "common/clock.h"
#include "common/error.h"
#include "common/files.h"

namespace imgd {

/// Waits for descriptors and times, and calls back. Everything happens on the thread that runs it.
/// A handler may watch and unwatch anything, itself included.
class EventLoop {
 public:
  /// Gets EPOLLIN, EPOLLOUT, EPOLLHUP, ... as epoll_wait(2) gave them.
  using FdHandler = std::function<void(uint32_t events)>;
  using TimerId = uint64_t;  ///< 0 is never a timer's

  static Result<std::unique_ptr<EventLoop>> Create();

  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Calls `handler` while `fd` is ready. The caller owns `fd`, and unwatches it before it is closed.
  Status Watch(int fd, uint32_t events, FdHandler handler);
  /// Waits for other events of a watched `fd`.
  void Modify(int fd, uint32_t events);
  /// Forgets `fd`; no handler of it is called afterwards. Nothing happens if it is not watched.
  void Unwatch(int fd);

  /// Calls `handler` once, not before `delay` has passed.
  TimerId After(Duration delay, std::function<void()> handler);
  /// Forgets a timer; nothing happens if it has run already.
  void Cancel(TimerId id);

  /// Waits at most `max_wait` for something to happen and handles what did.
  void RunOnce(Duration max_wait);
  /// Handles things until Stop().
  void Run();
  void Stop() { stopped_ = true; }

 private:
  struct Watched {
    int fd;
    std::shared_ptr<FdHandler> handler;
  };

  explicit EventLoop(UniqueFd epoll) : epoll_(std::move(epoll)) {}
  int WaitMs(Duration max_wait) const;
  void RunTimers();

  UniqueFd epoll_;
  bool stopped_ = false;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Watched> watched_;  ///< by the id that epoll hands back: a reused fd is told apart
  std::map<int, uint64_t> id_of_fd_;
  std::map<std::pair<Instant, TimerId>, std::function<void()>> timers_;
  std::map<TimerId, Instant> time_of_timer_;
};

}  // namespace imgd
