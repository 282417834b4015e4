#pragma once

#include <optional>
#include <string>

#include "common/clock.h"
#include "common/doctor/verdict.h"

namespace imgd::doctor {

/// What was found out about this machine's clock.
struct ClockFacts {
  std::optional<bool> is_kept;    ///< by NTP, as the kernel knows it
  std::optional<Duration> ahead;  ///< of imgd's; negative: behind it
  /// Where it can't be compared, since by it imgd's certificate is not good: from when to when that is; else
  /// empty.
  std::string doubt = {};
};

/// Whether NTP keeps this machine's clock, as the kernel knows it.
std::optional<bool> IsClockKept();

/// More than 10 s, which imgd uses no node beyond, is of the grade `far`; more than 1 s is a warning. `why`:
/// what goes by the clock, for people.
Verdict JudgeClock(const ClockFacts& facts, Grade far, std::string_view why);

}  // namespace imgd::doctor
