#pragma once

#include <cstdint>
#include <vector>

#include "common/job_file.h"
#include "common/phases.h"

namespace imgd {

/// The learning rate of each step of a run. A value; pure.
///
/// With warm-up steps W of T in all, it rises from `start` to `base` and is `base` in step W:
///   start + (base - start) * s / W           (one_cycle: by half a cosine)
/// and then, with d = (s - W) / (T - W), follows the schedule's kind down to `end`:
///   cosine, one_cycle: end + (base - end) * (1 + cos(pi * d)) / 2
///   polynomial:        end + (base - end) * (1 - d) ^ power
///   step:              base * gamma ^ (milestones that were passed)
/// Where the phases have rates of their own, it goes linearly from a phase's lr to its lr_end, by steps, and
/// nothing of the above holds. From T on it is 0.
class Schedule {
 public:
  Schedule() = default;
  /// `phases`: of a run that is never resized.
  Schedule(const JobSpec& spec, const Phases& phases);

  /// `step`: Phases::PlannedSteps(), which are whole numbers where the run was not resized.
  double LearningRate(double step) const;

 private:
  struct Line {
    double first_step;
    double end_step;
    double from;
    double to;
  };

  JobSpec::Schedule settings_;
  double base_ = 0.1;
  double start_ = 0;
  double warmup_steps_ = 0;
  double total_steps_ = 1;
  std::vector<double> milestones_;  ///< in steps
  std::vector<Line> lines_;         ///< of the phases; empty where they have no rates
};

}  // namespace imgd
