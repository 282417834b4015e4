#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/checkpoint/safetensors.h"
#include "common/error.h"
#include "common/job_file.h"

namespace imgd {

/// Checkpoints in a folder: `<root>/g<generation>/step<n>/` with model.safetensors, optimizer.safetensors,
/// ema.safetensors where weights are averaged, state.json, lineage.json, and manifest.json, which is written
/// last and lists the others with size and SHA-256. A folder without a manifest is no checkpoint.
/// CheckpointStore (store.h) has them in S3 too; an address there, "s3://bucket/...", is a path like any
/// other as far as only its text is concerned.

constexpr const char* kCheckpointManifest = "manifest.json";
constexpr int kCheckpointFormat = 1;  ///< that a manifest says

/// The job's own folder: `told`, IMGD_CHECKPOINT_DIR, or where that is empty one of the job's name.
std::filesystem::path CheckpointRoot(const JobSpec& spec, const std::filesystem::path& told);

/// The number of a folder named `<prefix><number>`.
std::optional<uint64_t> NumberIn(const std::string& name, std::string_view prefix);

/// A complete checkpoint's place.
struct CheckpointRef {
  std::filesystem::path path;
  uint64_t generation = 0;
  uint64_t step = 0;
};

/// The folder of a checkpoint below `root`.
std::filesystem::path CheckpointPath(const std::filesystem::path& root, uint64_t generation, uint64_t step);

/// The folder of a generation's checkpoints.
std::filesystem::path GenerationPath(const std::filesystem::path& root, uint64_t generation);

/// The generations that have a folder below `root`, in any order. Errors: as ListCheckpoints().
Result<std::vector<uint64_t>> ListGenerations(const std::filesystem::path& root);

/// The complete checkpoints below `root`, newest first: by generation, then by step. Other things there are
/// passed over. Errors: as the system calls; a root that does not exist has none.
Result<std::vector<CheckpointRef>> ListCheckpoints(const std::filesystem::path& root);

/// Whether the folder has a manifest.
bool IsCheckpoint(const std::filesystem::path& folder);

/// Folders below `root` that are called as checkpoints are, but are not complete. Errors: as
/// ListCheckpoints().
Result<std::vector<CheckpointRef>> ListUnfinished(const std::filesystem::path& root);

/// What a finished checkpoint looks like to others.
struct CommittedCheckpoint {
  CheckpointRef ref;
  uint64_t size_bytes = 0;
  std::string manifest_sha256;
};

/// Newest first, each once.
void NewestFirst(std::vector<CheckpointRef>& refs);

/// Makes the names in a folder durable. Errors: as the system calls.
Status SyncFolder(const std::filesystem::path& folder);

/// Makes the folder where it lacks and writes a file in it, which goes again.
/// Errors: as the system calls, naming the folder.
Status TryToWriteIn(const std::filesystem::path& root);

/// Writes one checkpoint. Nothing counts before Commit(); an unfinished one is removed with the writer.
class CheckpointWriter {
 public:
  /// Makes the folder; a checkpoint that is there already for this step goes.
  /// Errors: kAlreadyExists where that one is pinned; as the system calls, naming the path.
  static Result<CheckpointWriter> Begin(const std::filesystem::path& root, uint64_t generation,
                                        uint64_t step);
  CheckpointWriter(CheckpointWriter&& other) noexcept;
  CheckpointWriter& operator=(CheckpointWriter&&) = delete;
  ~CheckpointWriter();

  /// Writes a file piece by piece, synced to disk. Errors: kResourceExhausted when the disk is full; others
  /// as the system calls; all name the path.
  Status Add(const std::string& name, const std::vector<std::string_view>& pieces);
  Status AddTensors(const std::string& name, const std::vector<TensorView>& tensors,
                    const Metadata& metadata);

  /// Writes the manifest. From its rename on the checkpoint is complete.
  Result<CommittedCheckpoint> Commit();

  /// A file that was added, with its size in bytes.
  struct File {
    std::string name;
    uint64_t size = 0;
    std::string sha256;
  };
  const std::vector<File>& files() const { return files_; }

 private:
  CheckpointWriter(CheckpointRef ref, std::filesystem::path root)
      : ref_(std::move(ref)), root_(std::move(root)) {}

  CheckpointRef ref_;
  std::filesystem::path root_;
  std::vector<File> files_;
  bool open_ = true;
};

}  // namespace imgd
