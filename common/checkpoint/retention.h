#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "common/checkpoint/store.h"
#include "common/checkpoint/summary.h"
#include "common/error.h"

namespace imgd {

/// Which of a job's checkpoints stay when another one is complete. One that any of these names stays.
struct KeepRule {
  int newest = 1;        ///< so many, at least 1
  int best = 0;          ///< so many with the highest top-1 in validation.json
  int every_epochs = 0;  ///< those after a multiple of so many whole epochs; 0: none
  int every_steps = 0;   ///< those after a multiple of so many steps; 0: none
  /// The newest that this is true of; empty: none.
  std::function<bool(const CheckpointSummary&)> is_good;
};

/// Removes complete checkpoints of `newest`'s generation and older ones that the rule does not keep, the
/// oldest first, and what a kill has left of unfinished ones. `newest`, just committed, always stays: one
/// with a higher step may be a damaged one that this run did not go on from. So do pinned ones, and all of a
/// later generation. Call it while no checkpoint of this generation is being written. Errors: the
/// store's.
Status RemoveOldCheckpoints(const CheckpointStore& store, const CheckpointRef& newest, const KeepRule& rule);

// What follows is of checkpoints in a folder; CheckpointStore has it for those in S3 too.

/// CheckpointStore::RemoveUnfinished(). Errors: as the system calls.
Status RemoveUnfinishedCheckpoints(const std::filesystem::path& root, uint64_t generation);

/// A file of this name in a checkpoint's folder makes it stay.
inline constexpr const char* kCheckpointPin = "pinned";

/// Whether somebody wants the checkpoint in `folder` to stay: it has a file `pinned`.
bool IsPinned(const std::filesystem::path& folder);

/// Makes it stay, `why` being a sentence that the file has; or lets it go again. Another process may be about
/// to remove it: once this has returned, it won't be. Errors: kNotFound where it is not, or no longer, a
/// complete checkpoint; as the system calls.
Status PinCheckpoint(const std::filesystem::path& folder, const std::string& why);
Status UnpinCheckpoint(const std::filesystem::path& folder);

/// Removes a checkpoint, and its generation's folder if nothing is left in it. It stops being complete
/// before anything of it goes. False where it is pinned, and so stays. Errors: as the system calls.
Result<bool> RemoveCheckpoint(const std::filesystem::path& folder);

}  // namespace imgd
