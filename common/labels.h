#pragma once

#include <map>
#include <string>
#include <string_view>

#include "common/error.h"
#include "common/yaml.h"

namespace imgd {

/// Words about a node that jobs choose by: "zone" -> "us-east-1a". A name has 1 to 63 letters, digits, '.',
/// '_',
/// '/' or '-', a value 1 to 127 of these or ':'.
bool IsLabelName(std::string_view name);
bool IsLabelValue(std::string_view value);

/// Adds "NAME=VALUE". Errors: kInvalidArgument with what is allowed.
Status AddLabel(std::string_view text, std::map<std::string, std::string>& labels);

/// The mapping of names to values below `key`; its errors are the map's.
std::map<std::string, std::string> ReadLabels(YamlMap& yaml, std::string_view key);

}  // namespace imgd
