#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "server/store/metrics_store.h"

/// The form of stored logs: `logs/<job>/<generation>/<rank>.log`, then `<rank>.log.1`, `.2`, ... as they fill
/// up. One line each: number, microseconds since 1970 UTC, `O` or `E` for the stream, text; tabs between; in
/// the text, newline is `\n` and backslash `\\`.
namespace imgd {

/// One line of a rank's log.
struct StoredLine {
  uint64_t number = 0;
  int64_t time_us = 0;
  bool is_stderr = false;
  std::string text;
  bool operator==(const StoredLine&) const = default;
};

/// Begins the line in which an agent, or imgd of a run by hand, says that lines before it are lost for good:
/// its number is the last lost one's.
inline constexpr std::string_view kAgentNotice = "[imgagent] ";

/// With its newline.
std::string EncodeLine(const StoredLine& line);
/// `text` without its newline. Nothing when it is malformed.
std::optional<StoredLine> DecodeLine(std::string_view text);

/// The file of a segment.
std::filesystem::path LogFile(const std::filesystem::path& folder, const LogStream& stream, uint64_t segment);

}  // namespace imgd
