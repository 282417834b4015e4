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

/// What becomes of entries that are no files and no folders: links, devices and pipes.
enum class TarLinks {
  kRefused,     ///< an error: an image of a set that is a link would be missing without a word
  kPassedOver,  ///< for archives of which only some files are wanted
};

/// Goes through the headers of a tar archive (ustar, pax, GNU long names and large sizes); nothing is
/// unpacked, and the bytes of the files are not read. Folders are passed over. Formats: POSIX.1-2017, "pax -
/// ustar Interchange Format" and "pax Extended Header"; GNU tar manual, "Basic Tar". Nothing in the archive
/// is trusted: sizes are checked against the archive's own, names are only text, also absolute ones and those
/// with "..". An archive ends with two blocks of zeros; one may end without them where a file does.
class TarReader {
 public:
  explicit TarReader(const Source& source, TarLinks links = TarLinks::kRefused)
      : source_(source), links_(links) {}

  /// The next file; nothing at the end. Errors: kDataLoss naming the archive and the byte, for a header whose
  /// checksum or fields are wrong, an archive that is cut short, data behind the zeros that end it, sparse
  /// files, types that nobody knows, and links and devices where they are refused.
  Result<std::optional<TarEntry>> Next();

  /// After the end: whether the two blocks of zeros were there. Without them nobody knows whether the archive
  /// was cut behind a file.
  bool has_end() const { return has_end_; }

 private:
  struct Header;
  struct Overrides {
    std::optional<std::string> name;
    std::optional<uint64_t> size;
  };

  Result<bool> ReadHeader(Header& header);
  Status CheckEnd();
  Result<std::string> ReadText(uint64_t size);
  Status TakePax(uint64_t size, Overrides& overrides);
  Status Skip(uint64_t size);
  tl::unexpected<Error> Bad(const std::string& what) const;

  const Source& source_;
  TarLinks links_;
  uint64_t at_ = 0;  ///< the next header
  bool has_end_ = false;
};

}  // namespace imgd::data
