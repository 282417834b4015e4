#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace imgd {

/// An error at that place of the file; none where the mark is null.
Error ErrorAt(const YAML::Mark& mark, const std::string& file, std::string message);

/// The only document of `text`; no node for none. `file` names it in errors: kInvalidArgument, with line and
/// column, for what is no UTF-8, malformed, has a quote that is never closed, more than one document, or too
/// much in it, with what its aliases stand for.
Result<YAML::Node> LoadYaml(std::string_view text, const std::string& file);

/// Errors of one file that are told: who has made more is helped by these as well.
inline constexpr size_t kMostErrors = 100;

/// An error for each key that a mapping has more than once, at any depth, of which the parser takes the
/// first; one more than kMostErrors at most.
std::vector<Error> FindKeysSetTwice(const YAML::Node& root, const std::string& file);

}  // namespace imgd
