#pragma once

#include <cstdint>

namespace imgd::trainer {

/// A learning rate that rises linearly from 0 to `base` and falls to 0 as half a cosine.
struct Schedule {
  double base = 0.1;
  uint64_t warmup_steps = 0;
  uint64_t total_steps = 1;
};

/// The rate of step `step` (from 0). Pure. With W warm-up steps and T in all: base * (s + 1) / (W + 1) below
/// W, then base * (1 + cos(pi * (s - W) / (T - W))) / 2; 0 from T on. The rate is base in step W, and above 0
/// in each.
double LearningRate(const Schedule& schedule, uint64_t step);

}  // namespace imgd::trainer
