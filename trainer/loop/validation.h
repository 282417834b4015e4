#pragma once

#include "trainer/loop/session.h"

namespace imgd::trainer {

/// How a validation pass ended.
struct ValidationEnd {
  bool stopped = false;     ///< a stop command came; there is no result
  ValidationResult result;  ///< else
  report::ClassFigures classes;
  Commands::Taken asked;  ///< what was asked of any rank meanwhile
};

/// Counts every image of the validation set once, whatever the world size, with the averaged weights where
/// the job has them (ema). All ranks call it, with the same batch-norm buffers (SaveCheckpoint() or
/// ShareBuffers()). The loss is plain cross-entropy, without label smoothing. Errors: as data::Loader::Next;
/// throws CollectiveError.
Result<ValidationEnd> Measure(Session& session);

/// The same, puts the result into `session.state.validation` and reports it on rank 0.
Result<ValidationEnd> Validate(Session& session);

/// Copies rank 0's batch-norm buffers to all ranks: the rule for statistics that each rank gathers on its own
/// slice, and their averages. Done before each checkpoint and each validation pass.
void ShareBuffers(Session& session);

/// Copies rank 0's averaged weights to all ranks, once, at the start.
void ShareAverage(Session& session);

}  // namespace imgd::trainer
