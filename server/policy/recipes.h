#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/setting_diff.h"

namespace imgd {

/// How a model may be trained: what a job file says of training itself, which a job of a policy may not
/// change. The job's own remain its name, data sets, resources, checkpoints, limits, seed and what else
/// decides only where and how fast it trains.
struct AllowedRecipe {
  std::string name;     ///< its file's, without the folder and ".yaml"
  SettingMap settings;  ///< without the job's own
  bool operator==(const AllowedRecipe&) const = default;
};

/// Reads a job file, which need not name data sets. Errors: those of reading it; kInvalidArgument for what is
/// no job that trains.
Result<AllowedRecipe> ReadAllowedRecipe(const std::string& path);

/// What differs from the recipe that the job is nearest to; nothing where it is one of them.
struct RecipeBreach {
  std::string setting;  ///< where: "train.epochs"
  std::string text;     ///< "is 10, and recipe rn50-90ep has 90"
};
std::optional<RecipeBreach> BreachOf(const std::vector<AllowedRecipe>& recipes, const std::string& yaml);

}  // namespace imgd
