#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/app.h"
#include "common/checkpoint/summary.h"
#include "imgd/v1/job.pb.h"

namespace imgd::cli {

/// What JOB|DIR on the command line means.
struct CheckpointFolder {
  std::shared_ptr<CheckpointStore> store;  ///< its root has g<n>/step<n> in it
  std::optional<v1::Job> job;              ///< where the daemon was asked

  const std::filesystem::path& root() const { return store->root(); }
};

/// A text with a '/' in it, or "." or "..", is a folder, here or in S3, that has a job's checkpoints; every
/// other one a JOB, of which the daemon says where its checkpoints are. Errors: kNotFound;
/// kFailedPrecondition where the job's folder is on other machines only; as FindJob().
Reply<CheckpointFolder> FindCheckpointFolder(Context& context, const std::string& where);

/// A checkpoint that was named on the command line.
struct NamedCheckpoint {
  CheckpointFolder folder;
  CheckpointSummary summary;
};

/// The checkpoint whose own folder `where` is; nothing where it is another one, or a job.
std::optional<NamedCheckpoint> CheckpointItself(Context& context, const std::string& where);

/// What help says of a CKPT.
constexpr const char* kCheckpointHelp =
    "A checkpoint: its folder (.../g1/step500), or JOB:WHICH or DIR:WHICH, where WHICH is a step, "
    "g1/step500, "
    "best or latest (which may be left out)";

/// The checkpoint that CKPT means (kCheckpointHelp). Errors: as FindCheckpointFolder(); kNotFound.
Reply<NamedCheckpoint> FindCheckpoint(Context& context, const std::string& reference);

/// "g1/step500"
std::string ShortName(const CheckpointRef& ref);

}  // namespace imgd::cli
