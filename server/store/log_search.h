#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/error.h"
#include "server/store/log_format.h"
#include "server/store/log_match.h"

namespace imgd {

/// How much is wanted at most.
struct LogLimits {
  uint64_t lines = 0;
  size_t text_bytes = 0;    ///< of their texts
  uint64_t read_bytes = 0;  ///< of the files
};

/// Some of a rank's lines.
struct FoundLines {
  std::vector<StoredLine> lines;  ///< by number
  /// Before this one others may be like that; 0 where none is left.
  uint64_t previous = 0;
  bool too_many_bytes = false;  ///< fewer lines than wanted, for their size
  uint64_t read_bytes = 0;
};

/// The newest of a rank's lines that `filter` takes and whose numbers are below `before`. Looks from the end
/// on and stops when it has enough; where few lines are like that it reads with some threads at once. Where
/// older lines were removed to keep the log's size and every line is taken, one that says so is the first.
/// Errors: as the system calls, naming the file.
Result<FoundLines> FindBackwards(const std::filesystem::path& folder, const LogStream& stream,
                                 const LogPosition& stored, uint64_t before, const LineFilter& filter,
                                 const LogLimits& limits);

}  // namespace imgd
