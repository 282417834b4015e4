#pragma once

#include <cstdint>
#include <optional>
#include <span>
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

/// How an epoch goes through the images.
enum class EpochMode {
  kExact,      ///< each once; the last step may be smaller
  kResampled,  ///< each step draws with replacement; all steps are full
};

/// What the order of an epoch depends on, and nothing else.
struct OrderOptions {
  uint64_t seed = 0;
  uint32_t epoch = 0;
  uint32_t samples = 0;
  int global_batch = 1;
  int segments = 1;
  /// Samples in each shard, which sum up to `samples`: then what is read at about the same time lies near
  /// together. Empty: any sample may come at any time.
  std::span<const uint32_t> shards = {};
  EpochMode mode = EpochMode::kExact;
  uint64_t first_step = 0;  ///< resampled: step of the run that the epoch begins with
};

/// Which sample of a sharded set comes at which position of the epoch: the shards in a seeded order, then, in
/// each segment, two passes of shuffling within windows that overlap by half. docs/data-order.md has the
/// definition.
class ShardedOrder {
 public:
  /// A sample moves at most 1.5 windows away from its shard's place.
  static constexpr uint32_t kWindow = 8192;

  static constexpr uint32_t kMaxSamples = (1U << 28) - 1;

  explicit ShardedOrder(const OrderOptions& options);
  uint32_t operator()(uint32_t position) const;
  /// Some sample out of those that could be at this position: each is as likely over the whole epoch.
  uint32_t Draw(uint32_t position, Random random) const;

 private:
  struct Window {
    uint32_t start, length;
  };
  /// Bounds of the segment that a position is in, and what the second pass makes of it: a place in there.
  struct Place {
    uint32_t begin, size, at;
  };
  static Window WindowOf(uint32_t size, uint32_t at, uint32_t shift);
  Place PlaceOf(uint32_t position) const;
  uint32_t SampleAt(uint32_t place) const;
  uint32_t Shuffled(uint32_t begin, uint32_t size, uint32_t at, uint32_t shift, Purpose pass) const;

  uint64_t seed_;
  uint32_t epoch_;
  uint32_t samples_;
  uint32_t segments_;
  std::vector<uint32_t> starts_;  ///< position of each shard's first sample, shards in the epoch's order
  std::vector<uint32_t> firsts_;  ///< number of each shard's first sample, in the same order
};

/// Which samples are in which step of one epoch, and in which order: a function of OrderOptions, never of the
/// world size. docs/data-order.md has the definition.
/// Exact: each sample is in exactly one step; all steps but the last have `global_batch` samples. Resampled:
/// as many steps, all full.
/// Any step costs O(its samples). A value; safe to read from any thread.
class EpochOrder {
 public:
  /// Errors: kInvalidArgument when global_batch is no positive multiple of segments.
  static Result<EpochOrder> Create(const OrderOptions& options);

  uint64_t steps() const;

  /// Samples in the step over all ranks.
  uint32_t StepSize(uint64_t step) const;

  /// The whole step; `step` counts from the epoch's start, below steps().
  std::vector<uint32_t> StepSamples(uint64_t step) const;

  /// One rank's slice of it.
  std::vector<uint32_t> RankSamples(uint64_t step, int rank, int world_size) const;

  /// Any part of it.
  std::vector<uint32_t> Samples(uint64_t step, Slice slice) const;

 private:
  explicit EpochOrder(const OrderOptions& options);

  uint32_t SampleAt(uint32_t position) const {
    return sharded_ ? (*sharded_)(position) : permutation_(position);
  }
  std::vector<uint32_t> Drawn(uint64_t step, Slice slice) const;

  Permutation permutation_;
  std::optional<ShardedOrder> sharded_;
  uint32_t samples_;
  uint32_t global_batch_;
  uint32_t segments_;
  uint64_t seed_;
  uint64_t first_step_;
  bool resampled_;
};

}  // namespace imgd::data
