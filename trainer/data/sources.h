#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/remote/s3.h"
#include "trainer/data/source.h"

namespace imgd::data {

using Environment = GetVariable;

/// Where data that is far away comes from and is kept. docs/data-sources.md has the variables.
struct SourceSettings {
  HttpOptions http;
  Environment env;                            ///< for the credentials of S3
  std::string cache_folder;                   ///< of shards and indexes; empty: nothing is kept
  uint64_t cache_bytes = 0;                   ///< of shards, at most; 0: none is kept
  uint64_t ahead_bytes = uint64_t{64} << 20;  ///< memory for what is fetched ahead and not kept
  int connections = 8;                        ///< that fetch ahead
  std::string authorization_file;             ///< holds the value of the Authorization header

  /// Says on standard error what it waits for. Errors: kInvalidArgument for a variable that makes no sense.
  static Result<SourceSettings> FromEnvironment(Environment env = {});
};

/// Opens local and remote files that share connections, credentials, cache and memory. Sources outlive it.
/// Thread-safe.
class SourceOpener {
 public:
  explicit SourceOpener(SourceSettings settings);
  ~SourceOpener();

  const SourceSettings& settings() const;

  /// A path, http(s):// or s3://. `crc32c`: of the whole, where it is known: what is kept is checked against
  /// it. Errors: those of OpenFileSource and RemoteFile::Open; kInvalidArgument for a URL that is none.
  Result<std::shared_ptr<Source>> Open(const std::string& where,
                                       std::optional<uint32_t> crc32c = std::nullopt) const;

  /// The same without cache and fetching ahead, for those who read it once from front to back.
  Result<std::shared_ptr<Source>> OpenPlain(const std::string& where) const;

  /// The whole of a small local or remote file that may be missing; nothing where there is none. Servers that
  /// do not say what is missing count too: S3 without the right to list answers 403, others send a web page.
  Result<std::optional<std::string>> ReadSmall(const std::string& where, uint64_t most_bytes) const;

  /// The files in a remote folder, sorted by name: from a server that lists as nginx's `autoindex_format
  /// json` does, or S3. Errors: kNotFound; kFailedPrecondition where the server does not list.
  Result<std::vector<RemoteEntry>> List(const std::string& folder) const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace imgd::data
