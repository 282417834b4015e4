#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "agent/log_segment.h"
#include "agent/run_dir.h"
#include "common/files.h"
#include "imgd/v1/agent.pb.h"

namespace imgd {

/// Data that was sent and not acknowledged yet: the bytes of a stream that are on their way.
class Window {
 public:
  void Sent(uint64_t last_number, size_t bytes);
  void Acknowledged(uint64_t number);
  void Clear();
  size_t bytes() const { return bytes_; }

 private:
  std::deque<std::pair<uint64_t, size_t>> batches_;
  size_t bytes_ = 0;
};

/// Follows one rank's `events.<local_rank>` and hands the events on, each once and in order. In the place of
/// those that can't be read or are missing comes one EventsLost, so that later ones count all the same.
/// A record that is cut off at the end of the file is waited for. Not thread-safe.
class EventFollower {
 public:
  /// `quiet`: what is wrong with the file is not logged, since another follower of it does that.
  EventFollower(const RunDir& dir, uint32_t local_rank, bool quiet = false);

  /// Goes on after that sequence; what was handed out before and is later comes again.
  void GoOnAfter(uint64_t sequence);
  /// Adds the next events to `out`, from about `max_bytes` of the file. Returns their size; 0 when there are
  /// none there. The file of a long run has gigabytes, which must not all be read over in one call.
  size_t Read(size_t max_bytes, v1::TrainerEvents* out);
  /// The last Read() ended by its bound: there may be more now.
  bool more() const { return more_; }
  /// Events up to there are stored by the daemon.
  void Acknowledge(uint64_t sequence);
  /// True when everything that was handed out is acknowledged.
  bool AllAcknowledged() const { return acknowledged_ >= last_; }
  uint64_t last() const { return last_; }

 private:
  /// After the event of that sequence the file goes on there.
  struct Place {
    uint64_t sequence = 0;
    uint64_t offset = 0;  ///< bytes
  };
  bool Fill();
  std::optional<std::string> NextBody();
  void AddLost(uint64_t up_to, const char* reason, v1::TrainerEvents* out);

  std::filesystem::path path_;
  bool quiet_;
  UniqueFd fd_;
  std::string buffer_;        ///< read from the file
  size_t consumed_ = 0;       ///< of buffer_
  uint64_t offset_ = 0;       ///< in the file, of what is not consumed
  std::deque<Place> places_;  ///< of what was handed out, from the last that is acknowledged on
  bool more_ = false;
  uint64_t read_ = 0;  ///< sequence of the record that was read last
  uint64_t last_ = 0;  ///< sequence that was handed out last
  uint64_t acknowledged_ = 0;
  int64_t last_time_us_ = 0;
  bool damaged_ = false;  ///< a length that can't be: nothing after it can be found
};

/// Follows one rank's log segments and hands the lines on, each once and in order. Lines that are missing
/// (dropped, or lost to a full disk) are replaced by one line that says how many, with the time of the line
/// that follows, or at the end of the one before. Not thread-safe.
class LogFollower {
 public:
  LogFollower(const RunDir& dir, uint32_t local_rank, uint32_t rank, uint64_t generation);

  /// Goes on after that line; what was handed out before and is later comes again.
  void GoOnAfter(uint64_t line);
  /// Adds the next lines to `out`, about `max_bytes` of them. Returns their size; 0 when there are none now.
  size_t Read(size_t max_bytes, v1::LogLines* out);
  /// No more lines will be written; the last one has this number, as far as the shim could say.
  void SetEnd(uint64_t last_line) { end_ = last_line; }
  /// Lines up to there are stored by the daemon: removes segments that hold nothing else.
  void Acknowledge(uint64_t line);
  bool AllAcknowledged() const { return acknowledged_ >= last_; }
  uint64_t last() const { return last_; }
  /// Text of the line that was handed out last; empty before the first.
  const std::string& last_text() const { return last_text_; }

 private:
  bool OpenNext();
  bool Fill();
  bool ReadAgain();
  size_t AddLine(const LogRecord& record, v1::LogLines* out);
  size_t AddGap(uint64_t up_to, v1::LogLines* out);
  void CloseSegment();

  std::filesystem::path dir_;
  uint32_t local_rank_;
  uint32_t rank_;
  uint64_t generation_;
  std::optional<LogSegment> segment_;  ///< that is read now
  UniqueFd fd_;
  std::string buffer_;
  size_t consumed_ = 0;                 ///< of buffer_
  std::optional<off_t> read_again_at_;  ///< where the segment seemed to be damaged
  uint64_t last_ = 0;
  uint64_t acknowledged_ = 0;
  int64_t last_time_us_ = 0;  ///< of the line that was read last
  std::string last_text_;
  std::optional<uint64_t> end_;
};

}  // namespace imgd
