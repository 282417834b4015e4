#pragma once

#include <bit>
#include <cstddef>
#include <functional>
#include <vector>

namespace imgd {

/// Who came first with a key: a table that takes no memory for each of them, for there are many nodes and
/// each plan asks. A key is cheap to copy; what it refers to must outlive the table.
template <typename Key, typename Hash = std::hash<Key>>
class FirstOf {
 public:
  /// So many keys at most.
  explicit FirstOf(size_t most) : table_(std::bit_ceil(2 * most + 1)) {}

  /// The number that came with this key first: this one, where none did.
  size_t With(const Key& key, size_t number) {
    for (size_t at = Hash()(key);; ++at) {
      Entry& entry = table_[at & (table_.size() - 1)];
      if (!entry.is_used) entry = {key, number, true};
      if (entry.key == key) return entry.number;
    }
  }

 private:
  struct Entry {
    Key key{};
    size_t number = 0;
    bool is_used = false;
  };
  std::vector<Entry> table_;
};

}  // namespace imgd
