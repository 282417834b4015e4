#pragma once

#include "common/clock.h"

/// For tests.
namespace imgd {

/// A wall clock that is moved by hand, from `begin` on; its steady clock stands still.
class HandClock final : public Clock {
 public:
  explicit HandClock(WallTime begin) : now(begin) {}
  Instant Now() const override { return {}; }
  WallTime Wall() const override { return now; }
  void Pass(Duration time) {
    now.micros += std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  }

  WallTime now;
};

}  // namespace imgd
