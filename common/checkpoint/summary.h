#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/checkpoint/store.h"
#include "common/error.h"

namespace imgd {

/// A validation pass of a checkpoint's weights, as validation.json says. Accuracies are 0 to 1.
struct CheckpointScore {
  double top1 = 0;
  double top5 = 0;
  double loss = 0;
  uint64_t images = 0;
};

/// What can be said of a checkpoint without reading its tensors. What its files don't say is empty.
struct CheckpointSummary {
  CheckpointRef ref;
  std::optional<double> epoch;  ///< epochs done
  double loss = 0;              ///< last training loss before it
  std::string model;
  int world_size = 0;
  bool has_average = false;     ///< ema.safetensors
  std::optional<bool> planned;  ///< one of those that the job file, as it was then, has at regular distances
  std::optional<CheckpointScore> score;
  uint64_t size_bytes = 0;  ///< of the files that the manifest lists
  int64_t written_us = 0;   ///< when it was complete, microseconds since 1970 UTC
  bool pinned = false;
  bool best = false;  ///< the first of BestFirst()
};

/// By the text of validation.json; nothing where it says none, or one of another step.
std::optional<CheckpointScore> ScoreIn(std::string_view text, uint64_t step);

/// Epochs done, by the text of state.json; nothing where it does not say.
std::optional<double> EpochsIn(std::string_view text);

CheckpointSummary SummarizeCheckpoint(const CheckpointStore& store, const CheckpointRef& ref);

/// Of all complete checkpoints, newest first. Errors: those of the store's List().
Result<std::vector<CheckpointSummary>> SummarizeCheckpoints(const CheckpointStore& store);

/// Those that were validated, highest top-1 first; of equal ones the newest first.
std::vector<CheckpointSummary> BestFirst(const std::vector<CheckpointSummary>& all);

}  // namespace imgd
