#include "common/times.h"

#include <charconv>
#include <chrono>

namespace imgd {
namespace {

/// Takes a number of exactly so many digits from the front.
std::optional<int> TakeDigits(std::string_view& text, size_t digits) {
  if (text.size() < digits) return std::nullopt;
  int value = 0;
  const char* end = text.data() + digits;
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || text.front() == '-') return std::nullopt;
  text.remove_prefix(digits);
  return value;
}

bool Take(std::string_view& text, std::string_view one_of) {
  if (text.empty() || one_of.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

/// "Z", "+01:00": minutes before UTC.
std::optional<int> TakeZone(std::string_view& text) {
  if (Take(text, "Zz")) return 0;
  const bool west = text.starts_with('-');
  if (!Take(text, "+-")) return std::nullopt;
  const auto hours = TakeDigits(text, 2);
  if (!hours || !Take(text, ":")) return std::nullopt;
  const auto minutes = TakeDigits(text, 2);
  if (!minutes || *hours > 23 || *minutes > 59) return std::nullopt;
  return (west ? -1 : 1) * (*hours * 60 + *minutes);
}

}  // namespace

std::optional<int64_t> ParseTime(std::string_view text) {
  const auto year = TakeDigits(text, 4);
  if (!year || !Take(text, "-")) return std::nullopt;
  const auto month = TakeDigits(text, 2);
  if (!month || !Take(text, "-")) return std::nullopt;
  const auto day = TakeDigits(text, 2);
  if (!day || !Take(text, "Tt ")) return std::nullopt;
  const auto hour = TakeDigits(text, 2);
  if (!hour || !Take(text, ":")) return std::nullopt;
  const auto minute = TakeDigits(text, 2);
  if (!minute) return std::nullopt;
  int second = 0;
  if (Take(text, ":")) {
    const auto seconds = TakeDigits(text, 2);
    if (!seconds) return std::nullopt;
    second = *seconds;
  }
  const auto zone = TakeZone(text);
  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!zone || !text.empty() || !date.ok() || *hour > 23 || *minute > 59 || second > 59) return std::nullopt;
  const auto at = std::chrono::sys_days(date) + std::chrono::hours(*hour) +
                  std::chrono::minutes(*minute - *zone) + std::chrono::seconds(second);
  return std::chrono::duration_cast<std::chrono::microseconds>(at.time_since_epoch()).count();
}

}  // namespace imgd
