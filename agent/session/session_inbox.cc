#include "agent/session/session_inbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

namespace imgd {

SessionInbox::SessionInbox() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void SessionInbox::Wake() {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void SessionInbox::ClearEvent() {
  uint64_t count = 0;
  (void)!::read(wake_.get(), &count, sizeof count);
}

bool SessionInbox::Push(v1::SessionFrame frame) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || !frame_; });
  if (closed_) return false;
  frame_ = std::move(frame);
  Wake();
  return true;
}

std::optional<v1::SessionFrame> SessionInbox::Take() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
  return std::exchange(frame_, std::nullopt);
}

void SessionInbox::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
  Wake();
}

bool SessionInbox::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace imgd
