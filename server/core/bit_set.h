#pragma once

#include <algorithm>
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

  void Insert(const BitSet& other) {
    if (words_.size() < other.words_.size()) words_.resize(other.words_.size());
    size_ = 0;
    for (size_t i = 0; i < words_.size(); ++i) {
      if (i < other.words_.size()) words_[i] |= other.words_[i];
      size_ += static_cast<size_t>(std::popcount(words_[i]));
    }
  }
  /// Some number is in both.
  bool Meets(const BitSet& other) const {
    const size_t both = std::min(words_.size(), other.words_.size());
    for (size_t i = 0; i < both; ++i) {
      if ((words_[i] & other.words_[i]) != 0) return true;
    }
    return false;
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
