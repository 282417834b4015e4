#include "trainer/data/order.h"

#include <algorithm>

namespace imgd::data {

Slice RankSlice(uint32_t count, int rank, int world_size) {
  const auto bound = [&](int r) {
    return static_cast<uint32_t>(uint64_t{count} * static_cast<uint64_t>(r) /
                                 static_cast<uint64_t>(world_size));
  };
  return {bound(rank), bound(rank + 1)};
}

Result<EpochOrder> EpochOrder::Create(uint64_t seed, uint32_t epoch, uint32_t samples, int global_batch,
                                      int segments) {
  if (segments < 1) {
    return Fail(ErrorCode::kInvalidArgument, "segments is {}, which must be at least 1", segments);
  }
  if (global_batch < 1 || global_batch % segments != 0) {
    return Fail(ErrorCode::kInvalidArgument, "global batch {} is no positive multiple of segments, {}",
                global_batch, segments);
  }
  return EpochOrder(Permutation(samples, seed, epoch), static_cast<uint32_t>(global_batch),
                    static_cast<uint32_t>(segments));
}

uint64_t EpochOrder::steps() const {
  return (uint64_t{permutation_.size()} + global_batch_ - 1) / global_batch_;
}

uint32_t EpochOrder::StepSize(uint64_t step) const {
  const uint64_t start = step * global_batch_;
  return static_cast<uint32_t>(std::min<uint64_t>(global_batch_, permutation_.size() - start));
}

std::vector<uint32_t> EpochOrder::StepSamples(uint64_t step) const {
  return Samples(step, {0, StepSize(step)});
}

std::vector<uint32_t> EpochOrder::RankSamples(uint64_t step, int rank, int world_size) const {
  return Samples(step, RankSlice(StepSize(step), rank, world_size));
}

std::vector<uint32_t> EpochOrder::Samples(uint64_t step, Slice slice) const {
  std::vector<uint32_t> samples;
  samples.reserve(slice.last - slice.first);
  const uint64_t n = permutation_.size();
  const uint64_t quota = global_batch_ / segments_;
  uint64_t before = 0;  // samples of this step in the segments before
  for (uint64_t k = 0; k < segments_ && before < slice.last; ++k) {
    const uint64_t begin = k * n / segments_;
    const uint64_t end = (k + 1) * n / segments_;
    const uint64_t first = std::min(begin + step * quota, end);
    const uint64_t last = std::min(first + quota, end);
    // The part of [first, last) that lies within the slice.
    const uint64_t skip = slice.first > before ? slice.first - before : 0;
    const uint64_t stop = std::min(last, first + (slice.last - before));
    for (uint64_t position = first + skip; position < stop; ++position) {
      samples.push_back(permutation_(static_cast<uint32_t>(position)));
    }
    before += last - first;
  }
  return samples;
}

}  // namespace imgd::data
