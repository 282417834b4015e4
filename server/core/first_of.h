#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace imgd {

/// Who came first with a key. A table in one piece and small, for there are many nodes and each plan asks. A
/// key is cheap to copy; what it refers to must outlive the table.
template <typename Key, typename Hash = std::hash<Key>>
class FirstOf {
 public:
  /// So many keys at most.
  explicit FirstOf(size_t most) : places_(std::bit_ceil(2 * most + 1)) {}

  /// The number that came with this key first: this one, where none did.
  size_t With(const Key& key, size_t number) {
    for (size_t at = Hash()(key);; ++at) {
      uint32_t& place = places_[at & (places_.size() - 1)];
      if (place == 0) {
        firsts_.emplace_back(key, number);
        place = static_cast<uint32_t>(firsts_.size());
        return number;
      }
      const auto& [known, first] = firsts_[place - 1];
      if (known == key) return first;
    }
  }

 private:
  std::vector<uint32_t> places_;  ///< in firsts_, from 1; 0 for none
  std::vector<std::pair<Key, size_t>> firsts_;
};

}  // namespace imgd
