#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/error.h"
#include "server/store/log_format.h"
#include "server/store/metrics_store.h"

namespace imgd {

/// Where somebody is in a rank's log.
struct LogCursor {
  uint64_t last_line = 0;  ///< read so far
  uint64_t segment = 0;    ///< where the next line is expected
  uint64_t offset = 0;
};

/// The cursor from which the last `lines` stored ones follow; 0 for all that are kept.
/// Errors: as the system calls, naming the file.
Result<LogCursor> TailCursor(const std::filesystem::path& folder, const LogStream& stream,
                             const LogPosition& stored, uint64_t lines);

/// The cursor from which the lines after `number` follow.
Result<LogCursor> CursorAfter(const std::filesystem::path& folder, const LogStream& stream,
                              const LogPosition& stored, uint64_t number);

/// The next lines after the cursor, about `most_bytes` of them, and moves it. Where older lines were removed
/// to keep the log's size, a line that says so stands in for them. No lines: all that is stored was read.
Result<std::vector<StoredLine>> ReadLines(const std::filesystem::path& folder, const LogStream& stream,
                                          const LogPosition& stored, LogCursor& cursor, size_t most_bytes);

}  // namespace imgd
