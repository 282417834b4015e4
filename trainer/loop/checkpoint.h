#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "common/job_file.h"
#include "trainer/loop/safetensors.h"

namespace imgd::trainer {

/// Checkpoints on disk: `<root>/g<generation>/step<n>/` with model.safetensors, optimizer.safetensors,
/// ema.safetensors where weights are averaged, state.json, and manifest.json, which is written last and lists
/// the others with size and SHA-256. A folder without a manifest is no checkpoint. No LibTorch in here.

/// The job's own folder: `told`, IMGD_CHECKPOINT_DIR, or where that is empty one of the job's name.
std::filesystem::path CheckpointRoot(const JobSpec& spec, const std::filesystem::path& told);

/// Where files of figures and profiles go: report.dir, or `logs` in the checkpoints' folder.
std::filesystem::path FiguresFolder(const JobSpec& spec, const std::filesystem::path& told);

/// A complete checkpoint's place.
struct CheckpointRef {
  std::filesystem::path path;
  uint64_t generation = 0;
  uint64_t step = 0;
};

/// The folder of a checkpoint below `root`.
std::filesystem::path CheckpointPath(const std::filesystem::path& root, uint64_t generation, uint64_t step);

/// The complete checkpoints below `root`, newest first: by generation, then by step. Other things there are
/// passed over. Errors: as the system calls; a root that does not exist has none.
Result<std::vector<CheckpointRef>> ListCheckpoints(const std::filesystem::path& root);

/// What a start may go on from, newest first. With a `resume_file` (resume.json, docs/job-file.md): the
/// checkpoints that it names as accepted and the complete ones of its last generation; else all complete
/// ones. Errors: kInvalidArgument where resume.json is malformed; as the system calls.
Result<std::vector<CheckpointRef>> ResumeCandidates(const std::filesystem::path& root,
                                                    const std::optional<std::filesystem::path>& resume_file);

/// The files of a checkpoint, read and compared with the manifest.
struct CheckpointContent {
  std::string model;
  std::string optimizer;
  std::string state;
  std::string average;  ///< ema.safetensors; empty where there is none
};

/// Errors: kDataLoss where a file is not as the manifest says; kNotFound where one lacks.
Result<CheckpointContent> ReadCheckpoint(const CheckpointRef& ref);

/// What a finished checkpoint looks like to others.
struct CommittedCheckpoint {
  CheckpointRef ref;
  uint64_t size_bytes = 0;
  std::string manifest_sha256;
};

/// Makes the folder where it lacks and writes a file in it, which goes again.
/// Errors: as the system calls, naming the folder.
Status TryToWriteIn(const std::filesystem::path& root);

/// Writes one checkpoint. Nothing counts before Commit(); an unfinished one is removed with the writer.
class CheckpointWriter {
 public:
  /// Makes the folder; one that is there already for this step stops being complete at once.
  /// Errors: as the system calls, naming the path.
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

 private:
  struct File {
    std::string name;
    uint64_t size = 0;
    std::string sha256;
  };
  CheckpointWriter(CheckpointRef ref, std::filesystem::path root)
      : ref_(std::move(ref)), root_(std::move(root)) {}

  CheckpointRef ref_;
  std::filesystem::path root_;
  std::vector<File> files_;
  bool open_ = true;
};

/// Removes complete checkpoints of `newest`'s generation and older ones until `keep` (at least 1) of them are
/// left, the oldest first. `newest`, just committed, always stays: one with a higher step may be a damaged
/// one that this run did not go on from. Each stops being complete before anything else of it goes. Errors:
/// as the system calls.
Status RemoveOldCheckpoints(const std::filesystem::path& root, const CheckpointRef& newest, int keep);

}  // namespace imgd::trainer
