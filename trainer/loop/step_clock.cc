#include "trainer/loop/step_clock.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace imgd::trainer {

void StepClock::Start() {
  ++times_.steps;
  if (device_.is_cuda()) return Record(std::nullopt);
  last_ = SteadyClock::now();
}

void StepClock::Mark(Part part) {
  if (device_.is_cuda()) return Record(part);
  const auto now = SteadyClock::now();
  times_.of_part[static_cast<size_t>(part)] += std::chrono::duration<double>(now - last_).count();
  last_ = now;
}

void StepClock::Record(std::optional<Part> part) {
  if (used_ == stamps_.size()) {
    // LibTorch's own default is events that measure nothing.
    stamps_.push_back({{}, c10::Event(device_.type(), c10::EventFlag::BACKEND_DEFAULT)});
  }
  Stamp& stamp = stamps_[used_++];
  stamp.part = part;
  stamp.event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

/// Takes the stamps into the times.
void StepClock::Settle() {
  if (used_ > 0) stamps_[used_ - 1].event.synchronize();
  for (size_t i = 1; i < used_; ++i) {
    if (!stamps_[i].part) continue;
    const double milliseconds = stamps_[i - 1].event.elapsedTime(stamps_[i].event);
    times_.of_part[static_cast<size_t>(*stamps_[i].part)] += milliseconds / 1000;
  }
  used_ = 0;
}

StepClock::Times StepClock::Take() {
  Settle();
  taken_.steps += times_.steps;
  for (size_t i = 0; i < kParts; ++i) taken_.of_part[i] += times_.of_part[i];
  return std::exchange(times_, {});
}

StepClock::Times StepClock::SoFar() {
  Settle();
  Times all = taken_;
  all.steps += times_.steps;
  for (size_t i = 0; i < kParts; ++i) all.of_part[i] += times_.of_part[i];
  return all;
}

}  // namespace imgd::trainer
