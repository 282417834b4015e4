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

}  // namespace imgd::trainer
