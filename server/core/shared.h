#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <memory>
#include <set>
#include <utility>

namespace imgd {

/// A value that never changes, and that many may have: a copy takes no memory, and that two copies of one are
/// equal is seen without a look at it. Else it is as good as the value.
template <typename Value>
class Shared {
 public:
  Shared() : value_(Empty()) {}
  Shared(Value value) : value_(std::make_shared<const Value>(std::move(value))) {}
  Shared& operator=(Value value) { return *this = Shared(std::move(value)); }

  const Value& operator*() const { return *value_; }
  const Value* operator->() const { return value_.get(); }
  operator const Value&() const { return *value_; }
  /// The same for copies of one. Of two that differ the values may be equal.
  const Value* place() const { return value_.get(); }
  bool has_copies() const { return value_.use_count() > 1; }

  friend bool operator==(const Shared& a, const Shared& b) { return a.place() == b.place() || *a == *b; }
  friend auto operator<=>(const Shared& a, const Shared& b) -> std::compare_three_way_result_t<Value> {
    if (a.place() == b.place()) return std::compare_three_way_result_t<Value>::equivalent;
    return *a <=> *b;
  }

 private:
  static const std::shared_ptr<const Value>& Empty() {
    static const auto empty = std::make_shared<const Value>();
    return empty;
  }
  std::shared_ptr<const Value> value_;
};

/// Makes equal values copies of one.
template <typename Value>
class OneOfEach {
 public:
  Shared<Value> Of(Shared<Value> value) {
    if (known_.size() >= clean_at_) {
      std::erase_if(known_, [](const Shared<Value>& one) { return !one.has_copies(); });
      clean_at_ = std::max<size_t>(2 * known_.size(), kFirstClean);
    }
    return *known_.insert(std::move(value)).first;
  }
  size_t size() const { return known_.size(); }

 private:
  static constexpr size_t kFirstClean = 64;
  std::set<Shared<Value>> known_;
  size_t clean_at_ = kFirstClean;  ///< those that nobody has any more go when there are so many
};

}  // namespace imgd
