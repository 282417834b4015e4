#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/error.h"
#include "common/files.h"

namespace imgd::data {

/// A file that is written front to back and appears whole or not at all: it lies under a temporary name until
/// Finish(). Counts its bytes and their CRC-32C on the way.
class OutputFile {
 public:
  /// Errors: as open(2).
  static Result<OutputFile> Create(const std::string& path);
  OutputFile(OutputFile&&) = default;
  OutputFile& operator=(OutputFile&&) = delete;
  /// Removes what was not finished.
  ~OutputFile();

  /// Errors: as write(2).
  Status Write(std::span<const uint8_t> bytes);

  /// On disk under its own name when this returns; its folder's entry is not synced. Errors: as write(2),
  /// fsync(2), rename(2).
  Status Finish();

  uint64_t bytes() const { return bytes_; }
  /// CRC-32C of all bytes so far.
  uint32_t crc32c() const { return crc_; }

 private:
  OutputFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string temporary() const { return path_ + ".tmp"; }
  Status Flush();

  std::string path_;
  UniqueFd fd_;
  std::string buffer_;  ///< not written yet
  uint64_t bytes_ = 0;
  uint64_t started_ = 0;  ///< bytes whose way to the disk has begun
  uint32_t crc_ = 0;
};

}  // namespace imgd::data
