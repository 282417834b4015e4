#pragma once

#include <chrono>
#include <cstdint>

namespace imgd {

/// Steady time, for decisions and deadlines.
using Instant = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

/// Wall-clock time for people and records: microseconds since 1970 UTC.
struct WallTime {
  int64_t micros = 0;
  constexpr auto operator<=>(const WallTime&) const = default;
};

/// Where time comes from, so that tests can bring their own.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant Now() const = 0;
  virtual WallTime Wall() const = 0;
};

/// The machine's clocks. Thread-safe.
class SystemClock final : public Clock {
 public:
  Instant Now() const override { return std::chrono::steady_clock::now(); }
  WallTime Wall() const override {
    using std::chrono::duration_cast;
    using std::chrono::microseconds;
    return {duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch()).count()};
  }
};

}  // namespace imgd
