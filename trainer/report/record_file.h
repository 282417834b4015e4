#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/error.h"
#include "common/files.h"

namespace imgd::report {

/// A file of records that is only appended to, each whole or not at all, without a buffer: what was appended
/// is there though the process be killed. Not thread-safe.
class RecordFile {
 public:
  /// Opens the file, or makes it. Errors: as open(2) and stat(2), naming the path.
  static Result<RecordFile> Open(const std::filesystem::path& path);
  /// Makes the file with `head` in it, and its folder where that lacks. On an error there is no file.
  /// Errors: as the system calls, naming the path; one that is there already is an error.
  static Result<RecordFile> Create(const std::filesystem::path& path, std::string_view head);

  /// Appends one record, or nothing: what an error left of one is cut off, now or before the next record.
  Status Append(std::string_view record);
  /// Leaves only the first `bytes`.
  Status CutAt(uint64_t bytes);

 private:
  RecordFile(std::filesystem::path path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::filesystem::path path_;
  UniqueFd fd_;
  uint64_t bytes_ = 0;  ///< of whole records
  bool torn_ = false;   ///< there is more behind them
};

/// Records on their way into a RecordFile that is opened with the first of them. What can't be written is
/// kept and tried again with the next; of more than `kMostBytes` the oldest are given up. Not thread-safe.
class RecordQueue {
 public:
  using Opener = std::function<Result<RecordFile>()>;
  explicit RecordQueue(Opener open) : open_(std::move(open)) {}

  /// Errors: as Flush(); the record is kept all the same.
  Status Add(std::string record);
  /// Writes what is kept. Errors: why something is kept still: the opener's, or RecordFile::Append's.
  Status Flush();

  static constexpr size_t kMostBytes = size_t{4} << 20;

 private:
  const Opener open_;
  std::optional<RecordFile> file_;
  std::deque<std::string> waiting_;
  size_t waiting_bytes_ = 0;
};

}  // namespace imgd::report
