#include "trainer/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace imgd::trainer {

double LearningRate(const Schedule& schedule, uint64_t step) {
  if (step >= schedule.total_steps) return 0;
  const auto s = static_cast<double>(step);
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  if (step < schedule.warmup_steps) return schedule.base * (s + 1) / (warmup + 1);
  const double done = (s - warmup) / (static_cast<double>(schedule.total_steps) - warmup);
  return schedule.base * (1 + std::cos(std::numbers::pi * done)) / 2;
}

Schedule MakeSchedule(double base, double warmup_epochs, uint64_t steps_per_epoch, uint64_t epochs) {
  const uint64_t total = steps_per_epoch * epochs;
  const auto warmup =
      static_cast<uint64_t>(std::llround(warmup_epochs * static_cast<double>(steps_per_epoch)));
  return {.base = base, .warmup_steps = std::min(warmup, total), .total_steps = total};
}

}  // namespace imgd::trainer
