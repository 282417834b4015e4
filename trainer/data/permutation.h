#pragma once

#include <cstdint>

#include "trainer/data/random.h"

namespace imgd::data {

/// A seeded permutation of [0, n) whose values are computed one at a time: no list is kept, so a run resumes
/// anywhere at no cost. A Feistel network over Z_a x Z_b with a*b just above n; values beyond n are walked on
/// (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002), which takes 1 + O(1/sqrt(n)) tries.
/// docs/data-order.md has the exact definition. A value; safe to read from any thread.
class Permutation {
 public:
  /// `epoch`, `purpose` and `block` (below 2^28) choose among the permutations of one seed.
  Permutation(uint32_t n, uint64_t seed, uint32_t epoch, Purpose purpose = Purpose::kPermutation,
              uint32_t block = 0);

  uint32_t size() const { return n_; }

  /// Which sample is at `position`; position < size().
  uint32_t operator()(uint32_t position) const;

 private:
  uint64_t Encrypt(uint64_t value) const;

  uint32_t n_;
  uint32_t a_;
  uint32_t b_;
  uint64_t seed_;
  uint32_t epoch_;
  uint32_t purpose_;
  uint32_t first_round_;
};

}  // namespace imgd::data
