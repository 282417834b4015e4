#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/error.h"
#include "trainer/data/source.h"

namespace imgd::data {

/// A plain file in a tar archive, where its bytes lie.
struct TarEntry {
  std::string name;
  uint64_t offset = 0;  ///< of its first byte in the archive
  uint64_t size = 0;
};

/// Goes through the headers of a tar archive (ustar, pax, GNU long names and large sizes); nothing is
/// unpacked, and the bytes of the files are not read. Folders and other entries without content are passed
/// over. Formats: POSIX.1-2017, "pax - ustar Interchange Format" and "pax Extended Header"; GNU tar manual,
/// "Basic Tar". Nothing in the archive is trusted: sizes are checked against the archive's own, names are
/// only text.
class TarReader {
 public:
  explicit TarReader(const Source& source) : source_(source) {}

  /// The next file; nothing at the end. Errors: kDataLoss naming the archive and the byte, for a header whose
  /// checksum or fields are wrong, an archive that is cut short, sparse files, and links to other content.
  Result<std::optional<TarEntry>> Next();

 private:
  struct Header;
  struct Overrides {
    std::optional<std::string> name;
    std::optional<uint64_t> size;
  };

  Result<bool> ReadHeader(Header& header);
  Result<std::string> ReadText(uint64_t size);
  Status TakePax(uint64_t size, Overrides& overrides);
  Status Skip(uint64_t size);
  tl::unexpected<Error> Bad(const std::string& what) const;

  const Source& source_;
  uint64_t at_ = 0;  ///< the next header
};

}  // namespace imgd::data
