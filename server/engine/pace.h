#pragma once

#include <algorithm>
#include <chrono>

#include "common/clock.h"

namespace imgd {

/// Keeps work whose cost grows with the cluster from taking all of a thread's time: after it took some time
/// it rests for a multiple of that, so that a single change is acted on at once and a storm of them is taken
/// together. What holds all others up for long rests longer still. A plain value of one thread.
class Pace {
 public:
  /// The work gets at most one part in `rest` + 1 of the time, and half of that where it takes 10 ms, as long
  /// as its rest is less than 2 s.
  explicit Pace(int rest) : rest_(rest) {}

  bool Due(Instant now) const { return now >= next_; }
  /// When it is due again.
  Instant next() const { return next_; }
  void Took(Instant begun, Instant ended) {
    const double longer = 1 + std::chrono::duration<double>(ended - begun) / kLong;
    const auto rest = std::chrono::duration_cast<Duration>(longer * rest_ * (ended - begun));
    next_ = ended + std::min<Duration>(rest, kMost);
  }

 private:
  /// Twice as long a rest as it would have else.
  static constexpr std::chrono::duration<double> kLong = std::chrono::milliseconds(10);
  /// A machine that stood still is not made to wait for a multiple of that.
  static constexpr Duration kMost = std::chrono::seconds(2);

  int rest_;
  Instant next_{};
};

}  // namespace imgd
