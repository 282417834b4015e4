#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace imgd::data {

/// Philox4x32-10: four random words from a 128-bit counter and a 64-bit key.
/// Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// What random numbers are for. Each purpose has a stream of its own for the same seed, epoch and id, so that
/// a new use of randomness leaves the others as they were. Values are part of the order's definition: never
/// change them.
enum class Purpose : uint32_t {
  kPermutation = 1,  ///< docs/data-order.md
  kCrop = 2,         ///< RandomResizedCrop and flip
  kSynthesis = 3,    ///< pictures drawn by `dataset synth`
  kSynthNoise = 4,   ///< their noise
  kShards = 5,       ///< docs/data-order.md
  kWindow = 6,       ///< docs/data-order.md: first pass
  kWindow2 = 7,      ///< second pass
  kConversion = 8,   ///< order of the images in shards that are written
  kDraw = 16,        ///< which image a resampled epoch takes; docs/data-order.md
  kAugment = 17,     ///< RandAugment and TrivialAugment
  kErase = 18,       ///< RandomErasing
  kMix = 19,         ///< mixup and cutmix; (step, position) in the place of (epoch, id)
  kDropPath = 20,    ///< what the model draws; (step, rank) in the place of (epoch, id)
};

/// The stream of the same use in a resampled epoch, where an image may come twice in a step: (step, position)
/// stand in the place of (epoch, id).
constexpr Purpose Resampled(Purpose purpose) {
  return static_cast<Purpose>(static_cast<uint32_t>(purpose) | 0x100U);
}

/// A stream of random numbers that depends on (seed, epoch, id, purpose) only: never on the rank, the thread
/// or what was drawn before elsewhere. A value; copying it forks the stream.
class Random {
 public:
  Random(uint64_t seed, uint32_t epoch, uint32_t id, Purpose purpose)
      : counter_{0, static_cast<uint32_t>(purpose), epoch, id},
        key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {}

  uint32_t Next32() {
    if (used_ == 4) {
      words_ = Philox4x32(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return words_[used_++];
  }

  uint64_t Next64() {
    const uint64_t high = Next32();
    return high << 32 | Next32();
  }

  /// In [0, 1), a multiple of 2^-53.
  double Uniform() { return static_cast<double>(Next64() >> 11) * 0x1p-53; }

  /// In [low, high).
  double Uniform(double low, double high) { return low + (high - low) * Uniform(); }

  /// In [0, bound), each value equally likely; bound > 0.
  /// Source: Lemire, "Fast Random Integer Generation in an Interval", ACM TOMACS 2019.
  uint32_t Below(uint32_t bound) {
    uint64_t product = uint64_t{Next32()} * bound;
    if (static_cast<uint32_t>(product) < bound) {
      const uint32_t threshold = (0 - bound) % bound;
      while (static_cast<uint32_t>(product) < threshold) product = uint64_t{Next32()} * bound;
    }
    return static_cast<uint32_t>(product >> 32);
  }

  bool Coin() { return Next32() >> 31 != 0; }

 private:
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> words_{};
  size_t used_ = 4;
};

}  // namespace imgd::data
