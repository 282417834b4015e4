#pragma once

#include <algorithm>
#include <chrono>

#include "common/clock.h"

namespace imgd {

/// Keeps work whose cost grows with the cluster from taking all of a thread's time: after it took some time
/// it rests for a multiple of that, so that a single change is acted on at once and a storm of them is taken
/// together. A plain value of one thread.
class Pace {
 public:
  /// The work gets at most one part in `rest` + 1 of the time, as long as it takes less than 2 s / `rest`.
  explicit Pace(int rest) : rest_(rest) {}

  bool Due(Instant now) const { return now >= next_; }
  /// When it is due again.
  Instant next() const { return next_; }
  void Took(Instant begun, Instant ended) {
    next_ = ended + std::min<Duration>(rest_ * (ended - begun), kMost);
  }

 private:
  /// A machine that stood still is not made to wait for a multiple of that.
  static constexpr Duration kMost = std::chrono::seconds(2);

  int rest_;
  Instant next_{};
};

}  // namespace imgd
