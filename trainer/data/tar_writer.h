#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/error.h"
#include "trainer/data/output_file.h"

namespace imgd::data {

/// Writes a tar archive in the ustar format, names that it can't hold in pax headers, with nothing in it of
/// the machine or the time: the same files give the same bytes. It appears when it is finished (OutputFile).
/// Source: POSIX.1-2017, "ustar Interchange Format" and "pax Extended Header".
class TarWriter {
 public:
  using Header = std::array<char, 512>;
  /// Errors: as open(2).
  static Result<TarWriter> Create(const std::string& path);

  /// Appends a file; returns where its bytes lie in the archive. Errors: kInvalidArgument for an empty name,
  /// as write(2).
  Result<uint64_t> Add(const std::string& name, std::span<const uint8_t> content);

  /// The end of the archive; on disk under its own name when this returns. Errors: as write(2), fsync(2),
  /// rename(2).
  Status Finish();

  uint64_t bytes() const { return file_.bytes(); }
  /// CRC-32C of all bytes so far.
  uint32_t crc32c() const { return file_.crc32c(); }

 private:
  explicit TarWriter(OutputFile file) : file_(std::move(file)) {}

  Status AddEntry(Header& header, char type, std::span<const uint8_t> content);

  OutputFile file_;
};

}  // namespace imgd::data
