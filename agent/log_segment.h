#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace imgd {

/// One line of a rank's output.
struct LogRecord {
  uint64_t number = 0;  ///< in this rank's log, from 1
  int64_t time_us = 0;  ///< microseconds since 1970 UTC
  bool is_stderr = false;
  std::string_view text;  ///< without the newline; any bytes
};

/// Longest text of one record; a longer line comes in pieces.
inline constexpr size_t kMaxLineBytes = 16 << 10;

/// Adds `record` to `out` in the form that segments hold, all numbers little-endian:
///   uint32 length of the body, uint32 CRC-32 (IEEE 802.3) of the body,
///   body: uint64 number, int64 time_us, uint8 flags (1: standard error), text
/// A writer that is killed at any byte leaves whole records and at most one partial one at the end.
void AppendLogRecord(std::string& out, const LogRecord& record);

enum class LogParse { kRecord, kPartial, kCorrupt };

/// Reads the record that `data` begins with. kRecord: `record` (its text points into `data`) and `used`, the
/// record's size, are set. kPartial: the end is missing. kCorrupt: these bytes were never a record.
LogParse ParseLogRecord(std::string_view data, LogRecord* record, size_t* used);

/// A segment file of one rank: "log.<local_rank>.<first line's number>".
struct LogSegment {
  uint32_t local_rank = 0;
  uint64_t first_line = 0;
  auto operator<=>(const LogSegment&) const = default;
  std::string Name() const;
  static std::optional<LogSegment> Parse(std::string_view name);
};

/// The rank's segments in `dir`, oldest first.
std::vector<LogSegment> ListLogSegments(const std::filesystem::path& dir, uint32_t local_rank);

}  // namespace imgd
