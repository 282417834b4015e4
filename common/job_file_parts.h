#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "common/job_file.h"
#include "common/yaml.h"

/// Private to the files that read a job file.
namespace imgd::job_file_parts {

constexpr int64_t kMaxInt = 1'000'000'000;

/// For who looks for a time in `schedule`.
constexpr const char* kScheduleIsNoTime =
    "schedule is the learning rate's; when a job may start is said by not_before";

inline void Set(int& field, std::optional<int64_t> value) {
  if (value) field = static_cast<int>(*value);
}

template <typename T>
void Set(T& field, std::optional<T> value) {
  if (value) field = std::move(*value);
}

template <typename T>
void Set(std::optional<T>& field, std::optional<T> value) {
  if (value) field = std::move(value);
}

/// `command` and `convert`, once the resources are known; what only training has is an error beside them.
void ReadKind(YamlMap& root, JobSpec& spec);
/// Ranks run on other nodes, in folders of their own: an error where the path is relative.
void CheckAbsolute(YamlMap& map, const char* key, const std::string& path);
/// `after` and `not_before`.
void ReadWaits(YamlMap& root, JobSpec& spec);
/// `sweep`, once the epochs and the data are known.
void ReadSweep(YamlMap& root, JobSpec& spec);
/// `model`, once `data` is known.
void ReadModel(YamlMap& root, JobSpec& spec);
/// `train`, `phases` and `elastic`.
void ReadTraining(YamlMap& root, JobSpec& spec);
/// `optimizer`, `loss`, `schedule`, `ema`, `guard` and `early_stop`, once the epochs and phases are known.
void ReadLearning(YamlMap& root, JobSpec& spec);

}  // namespace imgd::job_file_parts
