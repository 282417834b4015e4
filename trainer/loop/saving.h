#pragma once

#include <optional>
#include <string>

#include "trainer/loop/session.h"

namespace imgd::trainer {

/// Begins to write a checkpoint of the session's state, from rank 0, in the background (session.saver). All
/// ranks call it, after ShareBuffers(), so that what is saved is what everybody has, and only with
/// WeightsAreFinite(). Errors: of the checkpoint before this one.
Status SaveCheckpoint(Session& session);

/// Whether all weights and buffers are finite numbers: others are of no use to go on from, and would push
/// good ones out. The same on all ranks after ShareBuffers(). Waits for the device.
bool WeightsAreFinite(const Session& session);

/// Puts what validation found beside the checkpoint of the same step, if there is one that is complete: this
/// start's, or the one that it went on from. Removes what is then no more to be kept. Rank 0 only.
Status SaveValidation(const Session& session);

/// Rank 0 takes up the newest good checkpoint (weights, momentum, state) and passes over damaged ones with a
/// note; the others are told which. Weights and buffers reach them with GradientAverager; momentum and state
/// here. Errors: kInvalidArgument for a checkpoint of another model or other classes, or where none of
/// several is good.
Status Resume(Session& session);

/// Whether a checkpoint is to be written after this step: one that is planned, or the last.
bool CheckpointDue(const Session& session, uint64_t step);
/// Whether it is one of those that the job file has at regular distances.
bool IsPlanned(const Session& session, uint64_t step);

/// Which checkpoints stay, as things are now. For any thread, while the session lives.
KeepRule KeepRuleOf(const Session& session);

/// Where a rollback went.
struct RolledBack {
  std::string path;
  uint64_t step = 0;
};

/// Rank 0 takes up the weights, momentum, average and loss scale of the newest good checkpoint (IsGood())
/// that the job file asked for, and all ranks get them. The step stays, and all else of the state. Nothing
/// where there is no such checkpoint. Errors: as Resume().
Result<std::optional<RolledBack>> RollBack(Session& session);

}  // namespace imgd::trainer
