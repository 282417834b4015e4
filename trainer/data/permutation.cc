#include "trainer/data/permutation.h"

#include <algorithm>
#include <cmath>

namespace imgd::data {
namespace {

constexpr uint32_t kRounds = 12;
constexpr uint32_t kRoundsRoom = 16;  ///< round numbers of one block

uint32_t CeilSqrt(uint32_t n) {
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));
  while (root * root < n) ++root;
  while (root > 1 && (root - 1) * (root - 1) >= n) --root;
  // At least 1, also for nothing: it is divided by.
  return static_cast<uint32_t>(std::max<uint64_t>(root, 1));
}

}  // namespace

Permutation::Permutation(uint32_t n, uint64_t seed, uint32_t epoch, Purpose purpose, uint32_t block)
    : n_(n),
      a_(CeilSqrt(n)),
      b_(n == 0 ? 1 : static_cast<uint32_t>((uint64_t{n} + a_ - 1) / a_)),
      seed_(seed),
      epoch_(epoch),
      purpose_(static_cast<uint32_t>(purpose)),
      first_round_(block * kRoundsRoom) {}

uint64_t Permutation::Encrypt(uint64_t value) const {
  uint64_t left = value / b_;
  uint64_t right = value % b_;
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)};
  for (uint32_t round = 0; round < kRounds; ++round) {
    const bool to_left = round % 2 == 0;
    const auto half = static_cast<uint32_t>(to_left ? right : left);
    const auto words = Philox4x32({half, purpose_, epoch_, first_round_ + round}, key);
    const uint64_t random = uint64_t{words[0]} << 32 | words[1];
    if (to_left) {
      left = (left + random % a_) % a_;
    } else {
      right = (right + random % b_) % b_;
    }
  }
  return left * b_ + right;
}

uint32_t Permutation::operator()(uint32_t position) const {
  uint64_t value = position;
  do {
    value = Encrypt(value);
  } while (value >= n_);
  return static_cast<uint32_t>(value);
}

}  // namespace imgd::data
