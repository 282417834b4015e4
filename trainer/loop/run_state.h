#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/job_file.h"
#include "common/phases.h"

namespace imgd::trainer {

/// What a validation pass found, over all ranks.
struct ValidationResult {
  uint64_t step = 0;  ///< steps done then; 0: there was none yet
  uint64_t images = 0;
  double loss = 0;
  double top1 = 0;  ///< 0 to 1
  double top5 = 0;  ///< 0 to 1
};

/// What guard remembers of a run.
struct GuardState {
  double mean_loss = 0;    ///< running mean of the training loss; 0 before the first look
  int64_t times_used = 0;  ///< steps left out, or rollbacks
  uint64_t good_step = 0;  ///< of the last look that found nothing wrong: checkpoints before it are good
  /// Rollbacks, by the steps of the checkpoint and of the run. Checkpoints between the two are no good; one
  /// of the second step, whose weights are those of the first, is.
  std::vector<std::pair<uint64_t, uint64_t>> given_up;
  /// Since the last look, over all ranks: loss, right answers, images, steps left out.
  std::array<double, 4> sums{};
};

/// How validation went so far, for early_stop.
struct BestSoFar {
  double value = 0;        ///< of early_stop.metric
  uint64_t step = 0;       ///< that it was reached at; 0 before the first pass
  uint64_t last_step = 0;  ///< of the last pass that was counted
  int passes_since = 0;    ///< without a better one
};

/// What a checkpoint holds apart from tensors: state.json.
struct RunState {
  uint64_t step = 0;  ///< optimiser steps done
  double epoch = 0;   ///< the same in epochs
  uint64_t seed = 0;
  int world_size = 1;
  uint64_t generation = 0;
  int global_batch = 0;
  uint64_t train_images = 0;
  std::string model;
  std::vector<std::string> class_names;  ///< in the order of the labels
  std::string optimizer;                 ///< optimizer.kind; empty in checkpoints of before it was written
  std::string job_digest;                ///< of the settings that change what is learnt; JobDigest()
  double loss_scale = 0;                 ///< fp16 only, else 0
  int64_t loss_scale_streak = 0;         ///< good steps since it last changed
  double last_loss = 0;                  ///< last reported training loss
  std::vector<Resize> resizes;           ///< by epoch; with linear_scaling only
  GuardState guard;
  BestSoFar best;
  ValidationResult validation;  ///< of the last pass before the checkpoint
  bool planned = false;         ///< one of those that the job file, as it was then, has at regular distances
};

std::string ToJson(const RunState& state);

/// Errors: kDataLoss where it is no state.json of this format.
Result<RunState> RunStateFromJson(std::string_view text);

/// validation.json: a validation pass of the weights in a checkpoint, put beside them when it is done. It is
/// not part of the checkpoint (the manifest does not list it).
std::string ToJson(const ValidationResult& result);
Result<ValidationResult> ValidationFromJson(std::string_view text);

/// Whether a checkpoint of this step has weights that a look at the loss found nothing wrong with.
bool IsGood(const GuardState& guard, uint64_t step);

/// linear_scaling: a run that goes on at `state.step` with `ranks` ranks is of as many from the next epoch on
/// that has not begun; one that has is finished as it was begun. Puts that down in the state.
void FollowRanks(const JobSpec& spec, uint64_t images, int ranks, RunState& state);

/// A digest of the settings that change what is learnt; priority, folders and the like are left out.
std::string JobDigest(const JobSpec& spec);

}  // namespace imgd::trainer
