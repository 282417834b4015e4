#include "cli/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <ctime>

#include "common/utf8.h"

namespace imgd::cli {
namespace {

std::tm LocalParts(int64_t time_us) {
  const std::time_t seconds = static_cast<std::time_t>(time_us / 1'000'000);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  return parts;
}

/// Reads one code point of `text` at `at` and moves past it; a broken byte counts as one character.
char32_t NextCodePoint(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  if (length == 1 || at + length > text.size()) {
    ++at;
    return lead;
  }
  char32_t point = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) point = (point << 6) | (byte(at + i) & 0x3Fu);
  at += length;
  return point;
}

int WidthOf(char32_t point) {
  if (point >= 0x300 && point <= 0x36F) return 0;
  const bool wide = (point >= 0x1100 && point <= 0x115F) || (point >= 0x2E80 && point <= 0xA4CF) ||
                    (point >= 0xAC00 && point <= 0xD7A3) || (point >= 0xF900 && point <= 0xFAFF) ||
                    (point >= 0xFE30 && point <= 0xFE6F) || (point >= 0xFF00 && point <= 0xFF60) ||
                    (point >= 0x1F300 && point <= 0x1FAFF) || point >= 0x20000;
  return wide ? 2 : 1;
}

/// A NaN's sign tells nothing.
std::string NotFinite(double value) { return std::isnan(value) ? "nan" : fmt::format("{}", value); }

}  // namespace

std::string HumanDuration(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds > 0 && seconds < 1) return "<1s";
  const auto total = static_cast<int64_t>(std::clamp(seconds, 0.0, 1e15));
  const int64_t s = total % 60, m = total / 60 % 60, h = total / 3600 % 24, d = total / 86400;
  if (d >= 100) return fmt::format("{}d", d);
  if (d > 0) return fmt::format("{}d{:02}h", d, h);
  if (h > 0) return fmt::format("{}h{:02}m", h, m);
  if (m > 0) return fmt::format("{}m{:02}s", m, s);
  return fmt::format("{}s", s);
}

std::string HumanMilliseconds(double seconds) {
  const double ms = seconds * 1000;
  return ms < 10 ? fmt::format("{:.1f} ms", ms) : fmt::format("{:.0f} ms", ms);
}

std::string HumanAge(int64_t now_us, int64_t then_us) {
  if (then_us == 0) return "-";
  return HumanDuration(static_cast<double>(now_us - then_us) / 1e6);
}

std::string HumanBytes(uint64_t bytes) {
  static constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{} {}", HumanRate(value), kUnits[unit]);
}

std::string HumanRate(double value) {
  if (!std::isfinite(value)) return NotFinite(value);
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size < 9.995) return fmt::format("{:.2f}", value);
  if (size < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

std::string HumanLoss(double value) {
  if (!std::isfinite(value)) return NotFinite(value);
  const double size = std::abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-4)) return fmt::format("{:.3e}", value);
  return size < 1 ? fmt::format("{:.4f}", value) : fmt::format("{:#.4g}", value);
}

std::string HumanPercent(double ratio) {
  if (!std::isfinite(ratio)) return "-";
  return fmt::format("{:.1f} %", ratio * 100);
}

std::string Bar(double ratio, int width, bool utf8) {
  if (!std::isfinite(ratio)) ratio = 0;
  ratio = std::clamp(ratio, 0.0, 1.0);
  std::string out;
  if (!utf8) {
    const int full = static_cast<int>(ratio * width);
    for (int i = 0; i < width; ++i) out += i < full ? '#' : '.';
    return out;
  }
  static constexpr std::array<const char*, 8> kEighths = {"░", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(ratio * width * 8);
  for (int i = 0; i < width; ++i) {
    const int here = std::clamp(eighths - i * 8, 0, 8);
    out += here == 8 ? "█" : kEighths[static_cast<size_t>(here)];
  }
  return out;
}

std::string LocalTime(int64_t time_us) {
  if (time_us == 0) return "-";
  const std::tm t = LocalParts(time_us);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday,
                     t.tm_hour, t.tm_min, t.tm_sec);
}

std::string LocalClock(int64_t time_us) {
  const std::tm t = LocalParts(time_us);
  return fmt::format("{:02}:{:02}:{:02}", t.tm_hour, t.tm_min, t.tm_sec);
}

std::string LocalTimestamp(int64_t time_us) {
  return fmt::format("{}.{:03}", LocalTime(time_us), time_us / 1000 % 1000);
}

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

Result<Duration> ParseDuration(std::string_view text) {
  std::string_view number = text;
  double unit = 1;
  const auto take = [&](std::string_view suffix, double seconds) {
    if (!number.ends_with(suffix) || unit != 1 || number.size() != text.size()) return;
    number.remove_suffix(suffix.size());
    unit = seconds;
  };
  take("ms", 1e-3);
  take("m", 60);
  take("h", 3600);
  take("d", 86400);
  if (number.size() == text.size() && number.ends_with('s')) number.remove_suffix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size() || !(value > 0) || value * unit > 3.2e7) {
    return Fail(ErrorCode::kInvalidArgument,
                "found '{}' where a duration like 500ms, 10s, 2m, 1h or 30d is expected", text);
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value * unit));
}

std::string Printable(std::string_view text) { return OneLine(text); }

int DisplayWidth(std::string_view text) {
  int width = 0;
  for (size_t at = 0; at < text.size();) width += WidthOf(NextCodePoint(text, at));
  return width;
}

std::string Truncate(std::string_view text, int width, bool utf8) {
  if (DisplayWidth(text) <= width) return std::string(text);
  const std::string_view ellipsis = utf8 ? "…" : "~";
  if (width <= 0) return "";
  int used = 0;
  size_t at = 0;
  while (at < text.size()) {
    size_t next = at;
    used += WidthOf(NextCodePoint(text, next));
    if (used > width - 1) break;
    at = next;
  }
  return std::string(text.substr(0, at)) + std::string(ellipsis);
}

std::string Count(uint64_t n, std::string_view noun) {
  // "class" and its like are the only nouns of ours that take more than an s.
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : noun.ends_with('s') ? "es" : "s");
}

}  // namespace imgd::cli
