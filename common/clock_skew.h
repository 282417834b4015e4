#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/clock.h"

namespace imgd {

/// Initial metadata of each answer of imgd's gRPC: its clock, microseconds since 1970 UTC.
inline constexpr const char* kTimeMetadata = "imgd-time-us";

/// How far this clock is ahead of imgd's (negative: behind), when an answer that was asked for at `asked` and
/// came at `came` says that it was `imgd_us`: half of the way there and back. Nothing where that is no
/// number.
inline std::optional<Duration> AheadOf(std::string_view imgd_us, WallTime asked, WallTime came) {
  int64_t there = 0;
  const auto [end, error] = std::from_chars(imgd_us.data(), imgd_us.data() + imgd_us.size(), there);
  if (error != std::errc() || end != imgd_us.data() + imgd_us.size()) return std::nullopt;
  return std::chrono::microseconds(asked.micros + (came.micros - asked.micros) / 2 - there);
}

}  // namespace imgd
