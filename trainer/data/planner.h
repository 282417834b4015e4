#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/error.h"
#include "trainer/data/dataset.h"
#include "trainer/data/loader.h"
#include "trainer/data/order.h"

namespace imgd::data {

/// Errors: kInvalidArgument, naming the option that makes no sense.
Status CheckOptions(const LoaderOptions& options);

/// Which samples a rank has in a step, in their order, and the size of the pictures made of them.
struct Plan {
  uint64_t step = 0;
  uint32_t epoch = 0;
  int global_count = 0;
  int width = 0;
  int height = 0;
  uint32_t first_position = 0;  ///< in the step, of the first sample
  Slice own;                    ///< of `samples`; those beside it are partners for mixing only
  std::vector<uint32_t> samples;
};

/// Lays out one rank's steps: a function of the options and the data set. Used by one thread at a time.
class Planner {
 public:
  /// Both must outlive the planner.
  Planner(const LoaderOptions& options, const Dataset& dataset);

  uint64_t first_step() const { return options_.training ? options_.start_step : 0; }
  uint64_t end_step() const { return options_.training ? options_.end_step : steps_per_epoch_; }

  /// Bytes of the largest batch of this rank.
  uint64_t MaxBatchBytes() const;

  /// `step` from first_step() on and below end_step(). Errors: as EpochOrder::Create().
  Result<Plan> Make(uint64_t step);

 private:
  Result<Plan> MakeTraining(uint64_t step);
  Plan MakeValidation(uint64_t step) const;

  const LoaderOptions& options_;
  const Dataset& dataset_;
  uint32_t samples_;
  uint64_t steps_per_epoch_;
  std::optional<EpochOrder> order_;
  uint32_t order_epoch_ = 0;
};

}  // namespace imgd::data
