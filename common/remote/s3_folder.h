#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/remote/s3.h"

namespace imgd {

/// Objects below "s3://bucket/prefix", read and written. Keys are those behind that prefix and a '/'. What
/// fails for a reason that may pass (no connection, a time-out, 429, 5xx) is tried again as HttpOptions say.
/// What is sent is signed with its SHA-256, and says it as x-amz-checksum-sha256: the server refuses it where
/// it came otherwise. Errors name the object, the status and S3's code. Thread-safe.
class S3Folder {
 public:
  /// Larger files go up in parts of so many bytes; S3 takes at most 10,000 of them, each but the last of
  /// 5 MiB or more.
  static constexpr uint64_t kPartBytes = uint64_t{16} << 20;

  /// Errors: kInvalidArgument where `where` is no "s3://bucket" or "s3://bucket/prefix".
  static Result<S3Folder> Open(const std::string& where, const GetVariable& env, HttpOptions http);

  /// "s3://bucket/prefix", without a '/' at the end.
  const std::string& where() const { return where_; }

  /// All that is below `folder` (without a '/' at its end; empty: all), at any depth.
  Result<std::vector<S3Key>> List(const std::string& folder = "") const;

  /// The whole; nothing where there is none. A read that breaks off goes on where it was. Errors: kDataLoss
  /// where it changes meanwhile or has more than `most_bytes`.
  Result<std::optional<std::string>> Get(const std::string& key, uint64_t most_bytes = UINT64_MAX) const;

  Status Put(const std::string& key, std::string_view content) const;
  /// False, and nothing is written, where there is such an object already that is another one. (One that is
  /// the same may be of a try of ours whose answer was lost.) Errors: kFailedPrecondition from a server that
  /// does not know If-None-Match.
  Result<bool> PutNew(const std::string& key, std::string_view content) const;
  /// A file. Errors: besides the server's those of the file system. Nothing stays of a failed one.
  Status PutFile(const std::string& key, const std::filesystem::path& file) const;

  /// True where there is none, too.
  Status Delete(const std::string& key) const;

  /// Ends uploads in parts that were begun and not finished, of the keys that `which` names.
  Status AbortUploads(const std::function<bool(const std::string& key)>& which) const;

 private:
  S3Folder(S3 s3, std::shared_ptr<const HttpClient> client, std::string bucket, std::string prefix);
  Result<RemoteObject> Object(const std::string& key) const;
  Result<std::string> Ask(const std::string& key, ObjectRequest request, HttpAnswer* answer = nullptr) const;
  Status PutInParts(const std::string& key, int fd, uint64_t size) const;
  Result<std::string> PutParts(const std::string& key, const std::string& upload, int fd,
                               uint64_t size) const;
  Status Complete(const std::string& key, const std::string& upload, const std::string& parts) const;

  S3 s3_;
  std::shared_ptr<const HttpClient> client_;
  std::string bucket_;
  std::string prefix_;  ///< ends with '/' or is empty
  std::string where_;
};

/// The content of a file, or of an object where it begins with s3://, as the process's environment says.
/// Errors: as ReadFile() and S3Folder::Get(); kNotFound.
Result<std::string> ReadFileOrObject(const std::string& where);

}  // namespace imgd
