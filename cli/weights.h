#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/command_line.h"
#include "common/checkpoint/lineage.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/summary.h"
#include "common/error.h"

namespace imgd::cli {

/// `--ema` and `--no-ema`.
struct WhichWeights {
  bool average = false;
  bool plain = false;
};
void AddWhichWeights(Command command, WhichWeights& which);

/// A checkpoint's weights in memory.
struct Weights {
  std::string file;                ///< what `content` points into
  SafetensorsContent content;      ///< with the file's own metadata
  bool average = false;            ///< ema.safetensors
  std::optional<Lineage> lineage;  ///< nothing where the checkpoint is of a version that wrote none
};

/// The averaged weights where there are any, unless `which` says otherwise; compared with the manifest.
/// Errors: kInvalidArgument where both were asked for; kNotFound where there are no averaged ones; as
/// ReadCheckpointFile(), and kDataLoss where the lineage can't be read.
Result<std::unique_ptr<Weights>> ReadWeights(const CheckpointStore& store,
                                             const CheckpointSummary& checkpoint, const WhichWeights& which);

/// The file's metadata, with the lineage.
Metadata MetadataOf(const Weights& weights);

/// Writes them as safetensors or as torch.save() does (WriteTorchFile), the lineage inside; so that a crash
/// leaves the old file or the new one. Errors: as the system calls, naming the path.
Status WriteSafetensors(const Weights& weights, const std::filesystem::path& path);
Status WriteTorch(const Weights& weights, const std::filesystem::path& path);

}  // namespace imgd::cli
