#include "trainer/data/slots.h"

#include <chrono>
#include <utility>

namespace imgd::data {

SlotQueue::SlotQueue(const Limits& limits)
    : limits_(limits), next_to_plan_(limits.first_step), next_to_deliver_(limits.first_step) {}

// The next batch is laid out, if there is room for it, before the images run out, so that nobody waits for
// its memory to be cleared.
std::optional<SlotQueue::Claim> SlotQueue::NextClaim() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (failure_) return std::nullopt;
    const bool more = next_to_plan_ < limits_.end_step;
    const bool room = next_to_plan_ - next_to_deliver_ < limits_.prefetch;
    if (more && room && !planning_ && Unclaimed() < limits_.workers * 2) {
      planning_ = true;
      return Claim{nullptr, 0, next_to_plan_};
    }
    for (const auto& slot : slots_) {
      if (slot->claimed < slot->plan.samples.size()) return Claim{slot.get(), slot->claimed++, std::nullopt};
    }
    NoteIdle(+1);
    if (!more && !planning_) return std::nullopt;
    work_.wait(lock);
    NoteIdle(-1);
  }
}

double SlotQueue::IdleSeconds() const {
  const std::lock_guard lock(mutex_);
  return std::chrono::duration<double>(IdleUntil(Clock::now())).count();
}

SlotQueue::Clock::duration SlotQueue::IdleUntil(Clock::time_point now) const {
  return idle_ + idle_threads_ * (now - idle_since_);
}

/// A wait counts while it lasts: it may be longer than the time between two reports.
void SlotQueue::NoteIdle(int change) {
  const auto now = Clock::now();
  idle_ = IdleUntil(now);
  idle_since_ = now;
  idle_threads_ += change;
}

size_t SlotQueue::Unclaimed() const {
  size_t n = 0;
  for (const auto& slot : slots_) n += slot->plan.samples.size() - slot->claimed;
  return n;
}

void SlotQueue::Opened(std::unique_ptr<Slot> slot) {
  {
    const std::lock_guard lock(mutex_);
    planning_ = false;
    ++next_to_plan_;
    slots_.push_back(std::move(slot));
  }
  work_.notify_all();
  ready_.notify_one();  // the batch may be empty
}

void SlotQueue::Done(Slot& slot) {
  const std::lock_guard lock(mutex_);
  if (--slot.open == 0) ready_.notify_one();
}

Result<std::unique_ptr<Slot>> SlotQueue::Take() {
  std::unique_ptr<Slot> slot;
  {
    std::unique_lock lock(mutex_);
    if (!failure_ && next_to_deliver_ >= limits_.end_step) return slot;
    ready_.wait(lock, [this] { return failure_ || (!slots_.empty() && slots_.front()->open == 0); });
    if (failure_) return tl::unexpected<Error>(*failure_);
    slot = std::move(slots_.front());
    slots_.pop_front();
    ++next_to_deliver_;
  }
  work_.notify_all();
  return slot;
}

void SlotQueue::Fail(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    planning_ = false;
    if (!failure_) failure_ = error;
  }
  work_.notify_all();
  ready_.notify_one();
}

std::vector<uint8_t> SlotQueue::SpareMemory() {
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) return {};
  auto memory = std::move(spare_.back());
  spare_.pop_back();
  return memory;
}

void SlotQueue::GiveBack(std::vector<uint8_t> memory) {
  const std::lock_guard lock(mutex_);
  if (spare_.size() < limits_.prefetch) spare_.push_back(std::move(memory));
}

}  // namespace imgd::data
