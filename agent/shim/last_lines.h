#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace imgd {

/// The last lines of a log, each cut. No memory is allocated once it has been full.
class LastLines {
 public:
  void Add(std::string_view line) {
    lines_[next_ % kMost].assign(line.substr(0, kMostBytes));
    ++next_;
  }

  /// Oldest first.
  std::vector<std::string> List() const {
    std::vector<std::string> out;
    for (size_t i = next_ < kMost ? 0 : next_ - kMost; i < next_; ++i) out.push_back(lines_[i % kMost]);
    return out;
  }

 private:
  static constexpr size_t kMost = 40;
  static constexpr size_t kMostBytes = 400;
  std::array<std::string, kMost> lines_;
  size_t next_ = 0;
};

}  // namespace imgd
