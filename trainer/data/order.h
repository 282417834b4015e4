#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/error.h"
#include "trainer/data/permutation.h"

namespace imgd::data {

/// What a rank's part of a step is: positions [first, last) of the step's list.
struct Slice {
  uint32_t first = 0;
  uint32_t last = 0;
};

/// The slice of rank `rank` of `world_size` in a step of `count` samples: [r*B/W, (r+1)*B/W), rounded down.
Slice RankSlice(uint32_t count, int rank, int world_size);

/// Which samples are in which step of one epoch, and in which order: a function of (seed, epoch, number of
/// samples, segments), never of the world size. docs/data-order.md has the definition.
/// Each sample is in exactly one step; all steps but the last have `global_batch` samples.
/// Any step costs O(its samples). A value; safe to read from any thread.
class EpochOrder {
 public:
  /// Errors: kInvalidArgument when global_batch is no positive multiple of segments.
  static Result<EpochOrder> Create(uint64_t seed, uint32_t epoch, uint32_t samples, int global_batch,
                                   int segments);

  uint64_t steps() const;

  /// Samples in the step over all ranks.
  uint32_t StepSize(uint64_t step) const;

  /// The whole step; `step` counts from the epoch's start, below steps().
  std::vector<uint32_t> StepSamples(uint64_t step) const;

  /// One rank's slice of it.
  std::vector<uint32_t> RankSamples(uint64_t step, int rank, int world_size) const;

 private:
  EpochOrder(Permutation permutation, uint32_t global_batch, uint32_t segments)
      : permutation_(permutation), global_batch_(global_batch), segments_(segments) {}

  std::vector<uint32_t> Samples(uint64_t step, Slice slice) const;

  Permutation permutation_;
  uint32_t global_batch_;
  uint32_t segments_;
};

}  // namespace imgd::data
