#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/job_file.h"

namespace imgd {

/// A stretch of epochs with its own batch and image size.
struct Phase {
  uint64_t first_epoch = 0;
  uint64_t end_epoch = 0;   ///< one past the last
  uint64_t first_step = 0;  ///< of the run
  uint64_t end_step = 0;
  uint64_t steps_per_epoch = 1;
  int image_size = 224;
  int global_batch = 256;
  double min_scale = 0.08;
  std::string train;  ///< empty for data.train

  bool operator==(const Phase&) const = default;
};

/// How a run's steps are spread over its epochs and phases. A value, never empty.
class Phases {
 public:
  Phases() : Phases(JobSpec(), 1) {}
  /// For a training set of `images` images, at least one.
  Phases(const JobSpec& spec, uint64_t images);

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

 private:
  std::vector<Phase> phases_;
};

}  // namespace imgd
