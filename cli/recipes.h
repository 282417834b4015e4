#pragma once

#include <span>
#include <string_view>

#include "common/error.h"

namespace imgd::cli {

/// A job file that imgcli carries along: one of deploy/recipes/.
struct Recipe {
  std::string_view name;
  std::string_view yaml;
};

/// By name. Made by CMake from the files.
std::span<const Recipe> Recipes();

/// What a job file's name begins with to be a recipe's: "recipe:rn50-90ep".
constexpr std::string_view kRecipeScheme = "recipe:";

/// Errors: kNotFound, with the nearest name or all.
Result<Recipe> FindRecipe(std::string_view name);

}  // namespace imgd::cli
