#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace imgd {

/// Variables of secrets and their values, which are only ever put into the environment of ranks.
using SecretVariables = std::map<std::string, std::string>;

/// What the files `folder`/NAME say: a variable a line, NAME=VALUE, blank lines and comments (#) beside them.
/// Each file has to be root's or this user's, and open to no others; so has the folder for writing.
/// Errors: kNotFound, kPermissionDenied, kInvalidArgument, naming file and line, never a value.
Result<SecretVariables> ReadSecrets(const std::filesystem::path& folder,
                                    const std::vector<std::string>& names);

/// The line with "***" in place of each value of at least eight bytes: against accidents, such as a program
/// that prints its environment. Who wants to print a value finds a way.
std::string HideValues(std::string_view line, const SecretVariables& secrets);

}  // namespace imgd
