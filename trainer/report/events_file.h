#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "common/error.h"
#include "trainer/report/record_file.h"

namespace imgd::report {

/// A file of frames, each a little-endian uint32 length and that many bytes, that is only appended to.
/// A reader that stops at an incomplete frame and comes back later sees every frame once. Not thread-safe.
class EventsFile {
 public:
  /// Opens or creates the file. What a crash left of a last, incomplete frame is cut off.
  /// Errors: as the system calls, naming the path; kDataLoss where a frame says it is longer than kMaxFrame.
  static Result<EventsFile> Open(const std::filesystem::path& path);

  /// Appends one frame, or nothing: after an error the file is as before.
  Status Append(std::string_view payload);

  /// The last complete frame's payload when the file was opened; empty for a new file.
  const std::string& last_payload() const { return last_payload_; }

  static constexpr uint32_t kMaxFrame = 1 << 24;

 private:
  explicit EventsFile(RecordFile file) : file_(std::move(file)) {}

  RecordFile file_;
  std::string last_payload_;
};

/// `payload` with its length in front, as frames are written everywhere here.
std::string Frame(std::string_view payload);

}  // namespace imgd::report
