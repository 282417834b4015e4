#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "common/checkpoint/store.h"
#include "common/remote/s3_folder.h"

namespace imgd {

/// Checkpoints below a prefix of a bucket: `<prefix>/g<generation>/step<n>/<file>`. One is written to a local
/// folder first; then its files go up, what is there is compared with them by size, and the manifest is put
/// last, on the condition that there is none (If-None-Match). To remove one, the manifest is put as
/// removing.json and goes first; a pin that came meanwhile brings it back.
class S3Checkpoints final : public CheckpointStore {
 public:
  /// `staging`: as OpenCheckpoints() has it.
  S3Checkpoints(S3Folder folder, std::filesystem::path staging)
      : CheckpointStore(folder.where()), folder_(std::move(folder)), staging_(std::move(staging)) {}

  Status TryToWrite() const override;
  Result<CheckpointListing> List() const override;
  Result<bool> IsComplete(const std::filesystem::path& folder) const override;
  /// One that can't be looked at counts as pinned.
  CheckpointFacts Look(const CheckpointRef& ref) const override;
  Result<std::string> Read(const CheckpointRef& ref, const std::string& name,
                           size_t most_bytes = SIZE_MAX) const override;
  Status Write(const CheckpointRef& ref, const std::string& name, std::string_view content) const override;
  Result<CheckpointWriter> Begin(uint64_t generation, uint64_t step) const override;
  Result<CommittedCheckpoint> Commit(CheckpointWriter writer) const override;
  Status Pin(const CheckpointRef& ref, const std::string& why) const override;
  Status Unpin(const CheckpointRef& ref) const override;
  Result<bool> Remove(const CheckpointRef& ref) const override;
  Status RemoveUnfinished(uint64_t generation) const override;

 private:
  /// The names of a checkpoint's files, by its folder's key.
  using Found = std::map<std::string, std::map<std::string, S3Key>>;

  std::string KeyOf(const std::filesystem::path& path) const;
  Result<Found> FindAll() const;
  Result<bool> Has(const CheckpointRef& ref, const std::string& name) const;
  Status RemoveFiles(const std::string& key) const;
  Status FinishOrUndo(const CheckpointRef& ref, const std::map<std::string, S3Key>& files) const;
  Status Upload(const CheckpointWriter& writer, const CheckpointRef& staged, const CheckpointRef& ref) const;
  Status CompareSizes(const CheckpointWriter& writer, const CheckpointRef& ref) const;

  S3Folder folder_;
  std::filesystem::path staging_;
};

}  // namespace imgd
