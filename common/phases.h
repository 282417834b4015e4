#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/job_file.h"

namespace imgd {

/// A change of the number of ranks, which elastic.rule: linear_scaling follows.
struct Resize {
  uint64_t epoch = 0;  ///< from its start on
  int ranks = 1;

  bool operator==(const Resize&) const = default;
};

/// A stretch of epochs with its own batch and image size: a phase of the job file, or what a resize makes of
/// a part of it.
struct Phase {
  size_t number = 0;  ///< in the job file, from 0
  uint64_t first_epoch = 0;
  uint64_t end_epoch = 0;   ///< one past the last
  uint64_t first_step = 0;  ///< of the run
  uint64_t end_step = 0;
  uint64_t steps_per_epoch = 1;
  int image_size = 224;
  int global_batch = 256;
  double min_scale = 0.08;
  std::string train;                ///< empty for data.train
  int ranks = 1;                    ///< that global_batch is for; elastic.ranks where nothing was resized
  uint64_t planned_first_step = 0;  ///< first_step if nothing had been resized
  uint64_t planned_steps_per_epoch = 1;  ///< likewise

  bool operator==(const Phase&) const = default;
};

/// How a run's steps are spread over its epochs and phases. A value, never empty.
class Phases {
 public:
  Phases() : Phases(JobSpec(), 1) {}
  /// For a training set of `images` images, at least one. `resizes`: by epoch, with linear_scaling only.
  Phases(const JobSpec& spec, uint64_t images, const std::vector<Resize>& resizes = {});

  const std::vector<Phase>& all() const { return phases_; }
  /// The phase that step `step` (counted from 0) is in; the last one for those beyond the end.
  const Phase& At(uint64_t step) const;
  /// Steps of all epochs.
  uint64_t total_steps() const { return phases_.back().end_step; }

  /// Epochs that are done after `steps` steps, as a fraction.
  double Epochs(uint64_t steps) const;
  /// The same where that is a whole number, else nothing.
  std::optional<uint64_t> WholeEpochs(uint64_t steps) const;
  /// Steps that are done after so many epochs, to the nearest.
  uint64_t Steps(double epochs) const;
  /// How far the run is after `steps` steps, in steps of one that was never resized.
  double PlannedSteps(uint64_t steps) const;

 private:
  std::vector<Phase> phases_;
};

/// The parts that each of `ranks` ranks computes its share of a step in: as many as keep a part no larger
/// than what train.accumulate makes of it on elastic.ranks ranks. Without a rule train.accumulate.
int PartsOfStep(const JobSpec& spec, const Phase& phase, int ranks);

}  // namespace imgd
