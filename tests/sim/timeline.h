#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "server/core/types.h"

namespace imgd::sim {

/// All chance of a life comes from here: one seed, one order of draws.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  uint64_t Below(uint64_t count) { return count == 0 ? 0 : random_() % count; }
  double Unit() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }
  bool Chance(double probability) { return Unit() < probability; }
  Duration Between(Duration least, Duration most) { return least + Scaled(most - least, Unit()); }
  /// Waiting times of that mean, at most 20 times as long.
  Duration Exponential(Duration mean) { return Scaled(mean, std::min(-std::log(1 - Unit()), 20.0)); }

 private:
  /// In whole milliseconds, so that nothing hangs on the last digit of a machine's logarithm.
  static Duration Scaled(Duration time, double factor) {
    const double ms = std::chrono::duration<double, std::milli>(time).count() * factor;
    return std::chrono::milliseconds(static_cast<int64_t>(ms));
  }
  std::mt19937_64 random_;
};

/// The simulated clock: it jumps from one event to the next. Events of one moment come in the order in which
/// they were asked for.
class Timeline {
 public:
  Now now() const { return now_; }
  /// Before the first event.
  void SetWall(WallTime wall) { now_.wall = wall; }
  Duration passed() const { return now_.steady - kBegin; }
  void After(Duration time, std::function<void()> what) {
    events_.push_back({now_.steady + std::max(time, Duration::zero()), next_++, std::move(what)});
    std::push_heap(events_.begin(), events_.end());
  }
  /// Runs the next event; false where there is none.
  bool Step() {
    if (events_.empty()) return false;
    std::pop_heap(events_.begin(), events_.end());
    Event event = std::move(events_.back());
    events_.pop_back();
    now_.wall.micros += std::chrono::duration_cast<std::chrono::microseconds>(event.at - now_.steady).count();
    now_.steady = event.at;
    event.what();
    ++count_;
    return true;
  }
  uint64_t count() const { return count_; }

 private:
  struct Event {
    Instant at;
    uint64_t number;
    std::function<void()> what;
    /// The heap's first is the earliest.
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : number > other.number;
    }
  };
  static constexpr Instant kBegin{std::chrono::hours(1)};
  Now now_{kBegin, WallTime{1'000'000'000'000'000}};
  std::vector<Event> events_;
  uint64_t next_ = 0;
  uint64_t count_ = 0;
};

}  // namespace imgd::sim
