#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/error.h"

namespace imgd::cli {

/// "<1s", "42s", "3m12s", "2h05m", "3d04h"; negative counts as zero, what is no number is "-".
std::string HumanDuration(double seconds);

/// "412 ms", "3.2 ms".
std::string HumanMilliseconds(double seconds);

/// How long before `now_us` the moment `then_us` was; "-" when `then_us` is 0. Microseconds since 1970 UTC.
std::string HumanAge(int64_t now_us, int64_t then_us);

/// "812 B", "45.2 MiB".
std::string HumanBytes(uint64_t bytes);

/// Three digits that matter, never an exponent: "3.42", "36.9", "812", "12345".
std::string HumanRate(double value);

/// Four digits that matter: "1.234", "0.01235"; "nan" and "inf" as they are.
std::string HumanLoss(double value);

/// "45.2 %" from 0.452.
std::string HumanPercent(double ratio);

/// A bar of `width` columns, filled by `ratio` (0 to 1): block characters with `utf8`, else '#' and '.'.
std::string Bar(double ratio, int width, bool utf8);

/// "2025-11-21 07:53:14" in the local time zone; "-" for 0. Microseconds since 1970 UTC.
std::string LocalTime(int64_t time_us);

/// "07:53:14", local.
std::string LocalClock(int64_t time_us);

/// "2025-11-21 07:53:14.123", local.
std::string LocalTimestamp(int64_t time_us);

/// "SIGKILL" for 9; "signal 99" for one without a name.
std::string SignalName(int signal);

/// "500ms", "10s", "2m", "1h" or a bare number of seconds. Errors: kInvalidArgument; 0 is refused too.
Result<Duration> ParseDuration(std::string_view text);

/// `text` on one line with control characters (escape sequences of a rank's output) made harmless.
std::string Printable(std::string_view text);

/// Columns that `text` (UTF-8) takes on a terminal.
int DisplayWidth(std::string_view text);

/// `text` cut to at most `width` columns, the end replaced by an ellipsis where it is cut.
std::string Truncate(std::string_view text, int width, bool utf8);

/// "1 rank", "2 ranks", "2 classes".
std::string Count(uint64_t n, std::string_view noun);

}  // namespace imgd::cli
