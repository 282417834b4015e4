#include "common/doctor/clock.h"

#include <fmt/format.h>
#include <sys/timex.h>

namespace imgd::doctor {
namespace {

constexpr Duration kFar = std::chrono::seconds(10);
constexpr Duration kSuspicious = std::chrono::seconds(1);

}  // namespace

std::optional<bool> IsClockKept() {
  timex clock{};
  const int state = ::adjtimex(&clock);
  if (state < 0) return std::nullopt;
  return state != TIME_ERROR && (clock.status & STA_UNSYNC) == 0;
}

Verdict JudgeClock(const ClockFacts& facts, Grade far, std::string_view why) {
  const auto advice = fmt::format("install chrony or systemd-timesyncd, here and on imgd's machine: {}", why);
  std::string off;
  if (facts.ahead) {
    const double seconds = std::chrono::duration<double>(*facts.ahead).count();
    off = fmt::format("{:.1f} s {} imgd's clock", std::abs(seconds), seconds < 0 ? "behind" : "ahead of");
    const Duration by = std::chrono::abs(*facts.ahead);
    if (by > kFar) return {far, off, advice};
    if (by > kSuspicious) return Warning(off, advice);
  }
  if (!facts.ahead && !facts.doubt.empty())
    return {far, facts.doubt, fmt::format("set the clock, here or there; {}", advice)};
  if (facts.is_kept && !*facts.is_kept)
    return Warning("no NTP keeps this machine's clock" + (off.empty() ? "" : "; it is " + off), advice);
  if (!facts.is_kept && off.empty()) return Unknown("the kernel does not say, and imgd neither");
  return Good((facts.is_kept ? std::string("kept by NTP") : std::string("agrees")) +
              (off.empty() ? "; imgd's is not known" : ", " + off));
}

}  // namespace imgd::doctor
