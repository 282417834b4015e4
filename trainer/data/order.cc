#include "trainer/data/order.h"

#include <algorithm>
#include <numeric>

namespace imgd::data {

Slice RankSlice(uint32_t count, int rank, int world_size) {
  const auto bound = [&](int r) {
    return static_cast<uint32_t>(uint64_t{count} * static_cast<uint64_t>(r) /
                                 static_cast<uint64_t>(world_size));
  };
  return {bound(rank), bound(rank + 1)};
}

ShardedOrder::ShardedOrder(const OrderOptions& options)
    : seed_(options.seed),
      epoch_(options.epoch),
      samples_(options.samples),
      segments_(static_cast<uint32_t>(options.segments)) {
  const auto count = static_cast<uint32_t>(options.shards.size());
  std::vector<uint32_t> first_of(count);
  std::exclusive_scan(options.shards.begin(), options.shards.end(), first_of.begin(), 0U);
  const Permutation shard_at(count, seed_, epoch_, Purpose::kShards);
  uint32_t start = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t shard = shard_at(i);
    starts_.push_back(start);
    firsts_.push_back(first_of[shard]);
    start += options.shards[shard];
  }
}

ShardedOrder::Window ShardedOrder::WindowOf(uint32_t size, uint32_t at, uint32_t shift) {
  const uint32_t start = at < shift ? 0 : shift + (at - shift) / kWindow * kWindow;
  return {start, std::min(at < shift ? shift : kWindow, size - start)};
}

/// Where the sample at `at` of a segment comes from in a pass whose first window is `shift` long.
uint32_t ShardedOrder::Shuffled(uint32_t begin, uint32_t size, uint32_t at, uint32_t shift,
                                Purpose pass) const {
  const Window window = WindowOf(size, at, shift);
  return window.start +
         Permutation(window.length, seed_, epoch_, pass, begin + window.start)(at - window.start);
}

ShardedOrder::Place ShardedOrder::PlaceOf(uint32_t position) const {
  const uint64_t n = samples_;
  const auto bound = [&](uint64_t k) { return static_cast<uint32_t>(k * n / segments_); };
  // The division may be off by one, since the bounds are rounded down.
  uint64_t segment = uint64_t{position} * segments_ / n;
  while (bound(segment + 1) <= position) ++segment;
  const uint32_t begin = bound(segment);
  const uint32_t size = bound(segment + 1) - begin;
  return {begin, size, Shuffled(begin, size, position - begin, kWindow / 2, Purpose::kWindow2)};
}

uint32_t ShardedOrder::SampleAt(uint32_t place) const {
  const auto shard = std::ranges::upper_bound(starts_, place) - starts_.begin() - 1;
  return firsts_[static_cast<size_t>(shard)] + (place - starts_[static_cast<size_t>(shard)]);
}

uint32_t ShardedOrder::operator()(uint32_t position) const {
  const Place place = PlaceOf(position);
  return SampleAt(place.begin + Shuffled(place.begin, place.size, place.at, kWindow, Purpose::kWindow));
}

uint32_t ShardedOrder::Draw(uint32_t position, Random random) const {
  const Place place = PlaceOf(position);
  const Window window = WindowOf(place.size, place.at, kWindow);
  return SampleAt(place.begin + window.start + random.Below(window.length));
}

EpochOrder::EpochOrder(const OrderOptions& options)
    : permutation_(options.samples, options.seed, options.epoch),
      samples_(options.samples),
      global_batch_(static_cast<uint32_t>(options.global_batch)),
      segments_(static_cast<uint32_t>(options.segments)),
      seed_(options.seed),
      first_step_(options.first_step),
      resampled_(options.mode == EpochMode::kResampled) {
  if (!options.shards.empty()) sharded_.emplace(options);
}

Result<EpochOrder> EpochOrder::Create(const OrderOptions& options) {
  if (options.segments < 1) {
    return Fail(ErrorCode::kInvalidArgument, "segments is {}, which must be at least 1", options.segments);
  }
  if (options.global_batch < 1 || options.global_batch % options.segments != 0) {
    return Fail(ErrorCode::kInvalidArgument, "global batch {} is no positive multiple of segments, {}",
                options.global_batch, options.segments);
  }
  if (options.shards.empty()) return EpochOrder(options);
  const uint64_t sum = std::accumulate(options.shards.begin(), options.shards.end(), uint64_t{0});
  if (sum != options.samples) {
    return Fail(ErrorCode::kInvalidArgument, "the shards have {} samples together, not {}", sum,
                options.samples);
  }
  if (sum > ShardedOrder::kMaxSamples) {
    return Fail(ErrorCode::kInvalidArgument, "{} samples in shards; at most {} are possible", sum,
                ShardedOrder::kMaxSamples);
  }
  return EpochOrder(options);
}

uint64_t EpochOrder::steps() const { return (uint64_t{samples_} + global_batch_ - 1) / global_batch_; }

uint32_t EpochOrder::StepSize(uint64_t step) const {
  if (resampled_) return samples_ == 0 ? 0 : global_batch_;
  const uint64_t start = step * global_batch_;
  return static_cast<uint32_t>(std::min<uint64_t>(global_batch_, samples_ - start));
}

std::vector<uint32_t> EpochOrder::StepSamples(uint64_t step) const {
  return Samples(step, {0, StepSize(step)});
}

std::vector<uint32_t> EpochOrder::RankSamples(uint64_t step, int rank, int world_size) const {
  return Samples(step, RankSlice(StepSize(step), rank, world_size));
}

/// Positions go on from the start of their segment where it ends before the last step does.
std::vector<uint32_t> EpochOrder::Drawn(uint64_t step, Slice slice) const {
  std::vector<uint32_t> samples;
  samples.reserve(slice.last - slice.first);
  const uint64_t quota = global_batch_ / segments_;
  for (uint32_t p = slice.first; p < slice.last; ++p) {
    Random random(seed_, static_cast<uint32_t>(first_step_ + step), p, Purpose::kDraw);
    if (!sharded_) {
      samples.push_back(random.Below(samples_));
      continue;
    }
    const uint64_t k = p / quota;
    const uint64_t begin = k * samples_ / segments_;
    const uint64_t size = (k + 1) * samples_ / segments_ - begin;
    // A segment is empty where there are more of them than samples.
    const uint64_t position = size > 0 ? begin + (step * quota + p % quota) % size : begin % samples_;
    samples.push_back(sharded_->Draw(static_cast<uint32_t>(position), random));
  }
  return samples;
}

std::vector<uint32_t> EpochOrder::Samples(uint64_t step, Slice slice) const {
  if (resampled_) return Drawn(step, slice);
  std::vector<uint32_t> samples;
  samples.reserve(slice.last - slice.first);
  const uint64_t n = samples_;
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
      samples.push_back(SampleAt(static_cast<uint32_t>(position)));
    }
    before += last - first;
  }
  return samples;
}

}  // namespace imgd::data
