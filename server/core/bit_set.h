#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace imgd {

/// A set of small numbers, a bit each: cheap to change, to copy, to count and to walk through in order.
class BitSet {
 public:
  size_t size() const { return size_; }
  bool Contains(size_t number) const {
    return number / kBits < words_.size() && (words_[number / kBits] >> (number % kBits) & 1) != 0;
  }
  void Insert(size_t number) {
    if (Contains(number)) return;
    if (words_.size() <= number / kBits) words_.resize(number / kBits + 1);
    words_[number / kBits] |= uint64_t{1} << (number % kBits);
    ++size_;
  }
  void Erase(size_t number) {
    if (!Contains(number)) return;
    words_[number / kBits] &= ~(uint64_t{1} << (number % kBits));
    --size_;
  }

  /// Calls `visit` with each number, rising, until it returns false; false where it did.
  template <typename Visit>
  bool ForEach(const Visit& visit) const {
    for (size_t i = 0; size_ > 0 && i < words_.size(); ++i) {
      for (uint64_t word = words_[i]; word != 0; word &= word - 1) {
        if (!visit(static_cast<uint32_t>(i * kBits) + static_cast<uint32_t>(std::countr_zero(word))))
          return false;
      }
    }
    return true;
  }

 private:
  static constexpr size_t kBits = 64;
  std::vector<uint64_t> words_;
  size_t size_ = 0;
};

}  // namespace imgd
