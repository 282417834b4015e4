#pragma once

#include "common/checkpoint/checkpoint.h"
#include "trainer/loop/session.h"

namespace imgd::trainer {

/// Begins to write a checkpoint of the session's state, from rank 0, in the background (session.saver). All
/// ranks call it: rank 0's batch-norm buffers are copied to all first, so that what is saved is what
/// everybody has. Errors: kInvalidArgument for weights that are no finite numbers; of the checkpoint before
/// this one.
Status SaveCheckpoint(Session& session);

/// Puts what validation found beside the checkpoint of the same step, if there is one that is complete: this
/// start's, or the one that it went on from. Removes what is then no more to be kept. Rank 0 only.
Status SaveValidation(const Session& session);

/// Rank 0 takes up the newest good checkpoint (weights, momentum, state) and passes over damaged ones with a
/// note; the others are told which. Weights and buffers reach them with GradientAverager; momentum and state
/// here. Errors: kInvalidArgument for a checkpoint of another model or other classes, or where none of
/// several is good.
Status Resume(Session& session);

}  // namespace imgd::trainer
