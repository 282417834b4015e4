#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "trainer/data/sources.h"

namespace imgd::data {

/// A checksum that a file must have: MD5 (32 hexadecimal digits) or SHA-256 (64), in lower case.
using Checksums = std::map<std::string, std::string>;  ///< by the file's name

/// Reads the format of md5sum and sha256sum: "digits  name" or "digits *name" on each line. Folders before
/// the name are left out. Errors: kDataLoss naming the line, as `name`:line.
Result<Checksums> ParseChecksums(const std::string& text, const std::string& name);

/// The MD5 of an archive of ILSVRC2012, as published with it; nothing for other names.
std::optional<std::string> KnownChecksum(const std::string& name);

/// Which of so many chunks a .parts file notes (FetchFile), by its lines behind the first: a number on each.
/// From a line on that is none, such as a torn last one, nothing counts.
std::vector<bool> ChunksNoted(std::string_view lines, size_t chunks);

struct FetchOptions {
  int connections = 4;
  uint64_t chunk_bytes = 16 << 20;
  std::optional<std::string> checksum;
  /// Called from one thread at a time; false stops: kCancelled, and the next call goes on.
  std::function<bool(uint64_t done, uint64_t total, bool checking)> on_progress;
};

struct Fetched {
  uint64_t bytes = 0;
  uint64_t kept = 0;     ///< of them there before: all for a file that was complete
  bool checked = false;  ///< against a checksum
};

/// Fetches `where` into the file `out`. Until it is complete it is `out`.part, and `out`.parts says which
/// parts of it are there, and of which version of the source: a fetch that was broken off goes on, unless the
/// source has changed. An `out` that is there is checked by size and checksum, and not fetched again. Errors:
/// kDataLoss for another size or checksum (a fetched file is removed then), and for more than 16 TiB;
/// kAlreadyExists where another fetch writes it.
Result<Fetched> FetchFile(const SourceOpener& opener, const std::string& where, const std::string& out,
                          const FetchOptions& options);

}  // namespace imgd::data
