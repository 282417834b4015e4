#include "trainer/loop/meter.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace imgd::trainer {

Meter::Figures Meter::Report(Instant now, double all_images, uint64_t steps_left, uint64_t validations_left) {
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
    // Of the first stretch nothing is kept: it has what comes once, as the trial of algorithms.
    const double keep = reports_++ <= 1 ? 0 : std::exp2(-seconds / kHalfLifeSeconds);
    recent_seconds_ = keep * recent_seconds_ + seconds;
    recent_steps_ = keep * recent_steps_ + static_cast<double>(steps_);
  }
  if (recent_steps_ > 0) {
    out.eta_seconds = recent_seconds_ / recent_steps_ * static_cast<double>(steps_left) +
                      Seconds(validation_).count() * static_cast<double>(validations_left);
  }
  since_ = now;
  waited_ = paused_ = Duration{0};
  images_ = 0;
  steps_ = 0;
  return out;
}

uint64_t ValidationsLeft(const Phases& phases, uint64_t step, uint64_t total_steps, int every_epochs) {
  const auto done_before = [&](uint64_t at) { return std::ceil(phases.Epochs(at) / every_epochs); };
  return static_cast<uint64_t>(done_before(total_steps) - done_before(step)) + 1;
}

}  // namespace imgd::trainer
