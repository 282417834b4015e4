#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/error.h"
#include "common/files.h"

namespace imgd::data {

/// Writes a tar archive in the ustar format, with nothing in it of the machine or the time: the same files
/// give the same bytes. It lies under a temporary name until Finish(). Source: POSIX.1-2017, "ustar
/// Interchange Format".
class TarWriter {
 public:
  /// Errors: as open(2).
  static Result<TarWriter> Create(const std::string& path);
  TarWriter(TarWriter&&) = default;
  TarWriter& operator=(TarWriter&&) = delete;
  /// Removes what was not finished.
  ~TarWriter();

  /// Appends a file; returns where its bytes lie in the archive. Errors: kInvalidArgument for a name of more
  /// than 100 bytes (255 where it can be cut at a '/'), as write(2).
  Result<uint64_t> Add(const std::string& name, std::span<const uint8_t> content);

  /// The end of the archive; on disk under its own name when this returns. Errors: as write(2), fsync(2),
  /// rename(2).
  Status Finish();

  uint64_t bytes() const { return bytes_; }
  /// CRC-32C of all bytes so far.
  uint32_t crc32c() const { return crc_; }

 private:
  TarWriter(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string temporary() const { return path_ + ".tmp"; }
  Status Write(std::span<const uint8_t> bytes);

  std::string path_;
  UniqueFd fd_;
  std::string buffer_;  ///< not written yet
  uint64_t bytes_ = 0;
  uint32_t crc_ = 0;
};

}  // namespace imgd::data
