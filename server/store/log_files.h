#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/error.h"
#include "server/store/log_format.h"
#include "server/store/metrics_store.h"

/// The files of a rank's log, for those who read them.
namespace imgd {

/// More than the longest line.
inline constexpr uint64_t kLogChunk = 1 << 16;

/// Up to `most` bytes from `offset`; fewer at the end of the file. Nothing when the file is not there (any
/// more). Errors: as the system calls, naming the file.
Result<std::optional<std::string>> ReadAt(const std::filesystem::path& path, uint64_t offset, size_t most);

/// How many bytes of the segment count: all of one that is no longer written.
uint64_t StoredBytes(const std::filesystem::path& path, const LogPosition& stored, uint64_t segment);

/// The first that is kept.
uint64_t OldestSegment(const LogPosition& stored);

/// A place in a rank's log.
struct LogPlace {
  uint64_t segment = 0;
  uint64_t offset = 0;
};

/// Where the first line with this number or a higher one begins; the end of what is stored where there is
/// none. Cost: a few reads, however long the log is.
Result<LogPlace> FindLine(const std::filesystem::path& folder, const LogStream& stream,
                          const LogPosition& stored, uint64_t number);

/// Stands in for lines that are no longer kept; it has the number of the last of them.
StoredLine RemovedLines(uint64_t first, uint64_t last, int64_t time_us);

}  // namespace imgd
