#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace imgd {

/// A time of day with its zone (RFC 3339), in microseconds since 1970 UTC: "2026-12-01T02:00:00Z",
/// "2026-12-01 02:00+01:00". Nothing for what is none, or has no zone.
std::optional<int64_t> ParseTime(std::string_view text);

}  // namespace imgd
