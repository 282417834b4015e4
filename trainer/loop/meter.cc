#include "trainer/loop/meter.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace imgd::trainer {

Meter::Figures Meter::Report(Instant now, double all_images, uint64_t steps_left) {
  using Seconds = std::chrono::duration<double>;
  constexpr double kHalfLifeSeconds = 60;
  const double seconds = std::max(Seconds(now - since_ - paused_).count(), 1e-9);
  Figures out;
  out.rank_images_per_second = static_cast<double>(images_) / seconds;
  out.images_per_second = all_images / seconds;
  out.seconds = seconds;
  out.input_wait_seconds = Seconds(waited_).count();
  out.input_wait_ratio = std::clamp(Seconds(waited_).count() / seconds, 0.0, 1.0);
  if (steps_ > 0) {
    const double step = seconds / static_cast<double>(steps_);
    const double old = seconds_per_step_ > 0 ? std::exp2(-seconds / kHalfLifeSeconds) : 0;
    seconds_per_step_ = old * seconds_per_step_ + (1 - old) * step;
  }
  out.eta_seconds = seconds_per_step_ * static_cast<double>(steps_left);
  since_ = now;
  waited_ = paused_ = Duration{0};
  images_ = 0;
  steps_ = 0;
  return out;
}

}  // namespace imgd::trainer
