#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/files.h"
#include "server/core/types.h"

/// Checkpoints' files, as far as imgd sees them. All of it may wait for a disk, or for a server of files.
namespace imgd {

/// A file of a checkpoint, as its manifest has it.
struct CheckpointFileInfo {
  std::string name;
  uint64_t size_bytes = 0;
  std::string sha256;  ///< lower-case hexadecimal
};

/// What a checkpoint is asked for by: "g1-step500".
std::string CheckpointName(Generation generation, uint64_t step);

/// Why imgd sees none of the job's checkpoints, in a sentence; nothing where it sees their folder.
std::optional<Error> WhyCheckpointsUnseen(const JobRecord& job);

/// A checkpoint's folder. Its path is what a trainer says that it is, so that whoever may submit jobs has it
/// name any folder that imgd sees: a file of it is only what lies there itself (no link), is a plain file,
/// and stands in the folder's own manifest with the size that it has.
class CheckpointFolder {
 public:
  /// Reads the manifest. `manifest_sha256`: that it was reported with; empty for any. Errors: kNotFound where
  /// there is none (any more), kPermissionDenied where imgd may not read it, kDataLoss for another manifest
  /// than the reported one.
  static Result<CheckpointFolder> Open(const std::filesystem::path& path, const std::string& manifest_sha256);

  /// Those that the manifest lists, and the manifest itself.
  const std::vector<CheckpointFileInfo>& files() const { return files_; }
  /// Whether somebody wants it to stay.
  bool pinned() const;
  /// What the trainer's rule goes by (common/checkpoint/summary.h): validation's result of this step, epochs;
  /// nothing where its files do not say.
  std::optional<double> Top1After(uint64_t step) const;
  std::optional<double> EpochsDone() const;

  struct OpenFile {
    UniqueFd fd;
    CheckpointFileInfo info;
  };
  /// Errors: as Open(); kNotFound for a file that is none of this checkpoint.
  Result<OpenFile> OpenOne(const std::string& name) const;

 private:
  CheckpointFolder(std::filesystem::path path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Result<UniqueFd> OpenIn(const std::string& name) const;
  Result<std::string> Read(const std::string& name) const;
  Status ReadManifest(const std::string& sha256);

  std::filesystem::path path_;
  UniqueFd fd_;
  std::vector<CheckpointFileInfo> files_;
};

}  // namespace imgd
