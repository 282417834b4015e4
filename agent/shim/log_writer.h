#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/log_segment.h"
#include "common/files.h"

namespace imgd {

/// Cuts a stream of bytes into lines, in pieces of at most kMaxLineBytes that do not split a UTF-8 sequence.
class LineSplitter {
 public:
  using Emit = std::function<void(std::string_view line)>;

  /// Takes the next bytes and emits each line that they end. "\r\n" ends a line as "\n" does.
  void Feed(std::string_view data, const Emit& emit);
  /// Emits what came after the last newline, if anything did.
  void Finish(const Emit& emit);
  /// What came after the last newline so far.
  std::string_view partial() const { return partial_; }

 private:
  void EmitLine(std::string_view line, const Emit& emit);
  std::string partial_;
};

/// Writes the ranks' lines of one run as segments, within a bound on their total size. Not thread-safe.
///
/// Never fails: lines that can't be written (full disk) are lost, and segments that nobody took are dropped,
/// oldest first, when the bound is reached. Either way the lines' numbers are used up, so that a reader sees
/// from the numbers how many lines are missing, and where.
class LogWriter {
 public:
  LogWriter(std::filesystem::path dir, uint32_t ranks, uint64_t limit_bytes);

  /// Appends a line to the rank's log; it is on its way to the disk only after Flush.
  void Append(uint32_t local_rank, int64_t time_us, bool is_stderr, std::string_view text);
  /// Writes what was appended.
  void Flush(uint32_t local_rank);
  /// Number of the rank's last line; lost ones count.
  uint64_t lines(uint32_t local_rank) const { return ranks_[local_rank].last_line; }

 private:
  struct Rank {
    UniqueFd fd;              ///< of the segment that is written now
    uint64_t size_bytes = 0;  ///< of that segment
    uint64_t last_line = 0;
    std::string buffer;         ///< records that are not written yet
    uint64_t buffer_first = 0;  ///< number of the first of them
  };
  struct Closed {
    std::filesystem::path path;
    uint64_t size_bytes;
  };

  bool OpenSegment(uint32_t local_rank);
  void CloseSegment(uint32_t local_rank);
  void KeepWithinLimit();

  std::filesystem::path dir_;
  uint64_t limit_bytes_;
  uint64_t segment_bytes_;
  std::vector<Rank> ranks_;
  std::vector<std::filesystem::path> current_;  ///< path of each rank's open segment
  std::deque<Closed> closed_;                   ///< oldest first
};

}  // namespace imgd
