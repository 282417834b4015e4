#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/settings.h"
#include "cli/weights.h"
#include "common/checkpoint/summary.h"

namespace imgd::cli {

/// Named, numbered weights in a folder: `<registry>/<name>/v<n>/` with model.safetensors, lineage.json and
/// version.json (docs/formats.md). A version appears when it is complete and never changes.
struct ModelVersion {
  std::string name;
  uint64_t version = 0;
  std::filesystem::path path;
  std::string model;  ///< "resnet50"
  bool is_average = false;
  std::string checkpoint;  ///< the folder that it was taken from
  std::optional<CheckpointScore> score;
  std::string note;
  std::string promoted_by;
  int64_t promoted_us = 0;
  uint64_t size_bytes = 0;  ///< of model.safetensors
  std::string sha256;       ///< likewise
};

/// The registry's folder: `flag` (empty: not given), then IMGD_MODELS, then `models:` in the user's file.
/// Errors: kInvalidArgument where none of them says it, and for what is wrong in the file.
Reply<std::filesystem::path> ResolveRegistry(const std::string& flag, const Environment& env);

/// Makes the weights the next version of `what.name`, whose path, number, size and checksum the answer has.
/// Errors: kInvalidArgument for a name that is none; as the system calls.
Result<ModelVersion> PromoteModel(const std::filesystem::path& registry, const ModelVersion& what,
                                  const Weights& weights);

/// By name, newest version first. Other things in the folder are passed over. Errors: kNotFound where there
/// is no such folder; as the system calls.
Result<std::vector<ModelVersion>> ListModels(const std::filesystem::path& registry);

/// "NAME" (its newest version) or "NAME:v2". Errors: kNotFound, naming what there is.
Result<ModelVersion> FindModel(const std::filesystem::path& registry, const std::string& reference);

/// The text of its lineage.json; empty where its checkpoint had none. Errors: as ReadFile().
Result<std::string> LineageOfModel(const ModelVersion& version);

}  // namespace imgd::cli
