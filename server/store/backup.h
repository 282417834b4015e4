#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/error.h"
#include "common/files.h"
#include "common/sha256.h"

namespace imgd {

/// The last file of a backup: JSON with its format, imgd's version, the time, and each file's size and
/// SHA-256.
inline constexpr const char* kBackupManifest = "imgd-backup.json";
inline constexpr int kBackupFormat = 1;

/// A backup of a state folder in use, piece by piece. The databases are as they were at one moment;
/// metrics.db may be ahead of state.db by what one commit wrote, as after a crash between the two. Jobs' logs
/// are not in it, nor is what imgd.yaml names at other places. Not thread-safe.
///
/// The copies that it is made of lie in the state folder, without a name, until it is destroyed.
class BackupSource {
 public:
  /// Makes the copies, which takes as long as to read and write both databases. Only one at a time may be
  /// there. `broken_off` is asked now and then. Without `with_ca` the CA is left out. Errors: those of the
  /// databases; kResourceExhausted where there is no room for the copies; kCancelled where it was broken off.
  /// Nothing is left of them then.
  static Result<BackupSource> Make(const std::filesystem::path& state_dir, const std::string& version,
                                   WallTime now, const std::function<bool()>& broken_off = {},
                                   bool with_ca = true);

  /// What comes next of the archive, at most some 256 KiB; empty at its end.
  Result<std::string> Next();
  /// Of the whole archive; to be called once, after its end.
  std::string Sha256OfAll() { return all_.Finish(); }

 private:
  struct File {
    std::string name;
    uint64_t size = 0;
    UniqueFd fd;
    std::string sha256;  ///< once it was read
  };

  BackupSource() = default;
  Status Open(const std::filesystem::path& path, const std::string& name);
  Status ReadMore(std::string& out);
  std::string Manifest() const;

  std::string version_;
  WallTime made_;
  std::vector<File> files_;
  size_t current_ = 0;
  uint64_t left_ = 0;  ///< of the current file
  bool begun_ = false;
  bool ended_ = false;
  std::optional<Sha256> of_file_;
  Sha256 all_;
};

}  // namespace imgd
