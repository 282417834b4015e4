#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/error.h"
#include "common/remote/aws_credentials.h"

namespace imgd {

/// What is in a job's own folder, newest first: by generation, then by step.
struct CheckpointListing {
  std::vector<CheckpointRef> complete;    ///< with a manifest
  std::vector<CheckpointRef> unfinished;  ///< called as checkpoints are, without one
};

/// What a store knows of a checkpoint besides its files.
struct CheckpointFacts {
  int64_t written_us = 0;  ///< when it was complete, microseconds since 1970 UTC; 0: not known
  bool pinned = false;
};

/// Where a job's checkpoints are: a folder, or a prefix in S3. In both a checkpoint is complete when its
/// manifest is there, which is written last, and stops being complete before anything of it goes; a file
/// `pinned` keeps it. All calls may come from any thread. Errors name the file or object; kUnavailable, of
/// servers, is not among them: it is kInternal, since to the trainer it is a broken collective.
class CheckpointStore {
 public:
  virtual ~CheckpointStore() = default;

  /// "/ckpt/rn50-a1b2-12", or "s3://bucket/rn50-a1b2-12" with the text of the address.
  const std::filesystem::path& root() const { return root_; }

  /// Writes something small and removes it again. Errors: what would keep a checkpoint from being written.
  virtual Status TryToWrite() const = 0;

  /// Other things than checkpoints are passed over; a root that does not exist has none.
  virtual Result<CheckpointListing> List() const = 0;
  virtual Result<bool> IsComplete(const std::filesystem::path& folder) const = 0;
  virtual CheckpointFacts Look(const CheckpointRef& ref) const = 0;

  /// A file of a checkpoint. Errors: kNotFound; kInvalidArgument or kDataLoss for more than `most_bytes`.
  virtual Result<std::string> Read(const CheckpointRef& ref, const std::string& name,
                                   size_t most_bytes = SIZE_MAX) const = 0;
  /// Replaces a file that the manifest does not list, whole.
  virtual Status Write(const CheckpointRef& ref, const std::string& name, std::string_view content) const = 0;

  /// As CheckpointWriter::Begin(); the folder it writes to is the checkpoint's own or a local one before it
  /// goes elsewhere. A checkpoint that is there already for this step goes. Errors: kAlreadyExists where that
  /// one is pinned.
  virtual Result<CheckpointWriter> Begin(uint64_t generation, uint64_t step) const = 0;
  /// Makes what the writer wrote a complete checkpoint of this store. Errors: as the system calls, or the
  /// server's; then it is none.
  virtual Result<CommittedCheckpoint> Commit(CheckpointWriter writer) const = 0;

  /// As PinCheckpoint() and RemoveCheckpoint() in retention.h.
  virtual Status Pin(const CheckpointRef& ref, const std::string& why) const = 0;
  virtual Status Unpin(const CheckpointRef& ref) const = 0;
  virtual Result<bool> Remove(const CheckpointRef& ref) const = 0;
  /// Removes what was begun and not finished by this generation and older ones, and what is half removed,
  /// but nothing that is pinned. Call it while this generation writes none.
  virtual Status RemoveUnfinished(uint64_t generation) const = 0;

 protected:
  explicit CheckpointStore(std::filesystem::path root) : root_(std::move(root)) {}

 private:
  std::filesystem::path root_;
};

/// Checkpoints below a folder of this machine, or one that it mounts.
class LocalCheckpoints final : public CheckpointStore {
 public:
  explicit LocalCheckpoints(std::filesystem::path root) : CheckpointStore(std::move(root)) {}

  Status TryToWrite() const override;
  Result<CheckpointListing> List() const override;
  Result<bool> IsComplete(const std::filesystem::path& folder) const override;
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
};

/// Whether the address is one of S3: "s3://bucket/prefix".
bool IsInS3(const std::filesystem::path& root);

/// The store that `root` is of. For S3, `staging` is a local folder of this run's own, where a checkpoint is
/// written before it goes up and which is emptied then; who only reads needs none. `env` says how S3 is
/// reached (docs/data-sources.md). Errors: kInvalidArgument for an address that is none.
Result<std::shared_ptr<CheckpointStore>> OpenCheckpoints(const std::filesystem::path& root,
                                                         const std::filesystem::path& staging = {},
                                                         const GetVariable& env = VariableOfProcess);

/// The complete checkpoint in `folder`, whose path must end with g<n>/step<n>.
/// Errors: kNotFound where it is none.
Result<CheckpointRef> CheckpointAt(const CheckpointStore& store, const std::filesystem::path& folder);

/// What a start may go on from, newest first. With a `resume_file` (resume.json, docs/job-file.md): the
/// checkpoints that it names as accepted and the complete ones of its last generation; else all complete
/// ones. Errors: kInvalidArgument where resume.json is malformed; the store's.
Result<std::vector<CheckpointRef>> ResumeCandidates(const CheckpointStore& store,
                                                    const std::optional<std::filesystem::path>& resume_file);

/// The files of a checkpoint, read and compared with the manifest.
struct CheckpointContent {
  std::string model;
  std::string optimizer;
  std::string state;
  std::string average;  ///< ema.safetensors; empty where there is none
};

/// Errors: kDataLoss where a file is not as the manifest says; kNotFound where one lacks.
Result<CheckpointContent> ReadCheckpoint(const CheckpointStore& store, const CheckpointRef& ref);

/// One file, compared with the manifest. Errors: as ReadCheckpoint(); kNotFound where the manifest does not
/// list it.
Result<std::string> ReadCheckpointFile(const CheckpointStore& store, const CheckpointRef& ref,
                                       const std::string& name);

}  // namespace imgd
