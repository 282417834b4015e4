#pragma once

#include <string>
#include <vector>

#include "common/error.h"
#include "common/files.h"

namespace imgd {

/// The folders and files that ranks see, all below them included. Others can't be opened, whatever their
/// rights.
struct VisiblePaths {
  bool limited = false;            ///< false: all that the user may
  std::vector<std::string> read;   ///< to read and execute
  std::vector<std::string> write;  ///< to read and write too
};

/// Whether the path is one of the folders, or below one, symbolic links followed.
bool IsWithin(const std::string& path, const std::vector<std::string>& folders);

/// The kernel's version of Landlock, at least the one that is needed. Errors: kFailedPrecondition, in words.
Result<int> LandlockVersion();

/// A ruleset of those paths. What is not there is left out, so that a rank finds it absent either way.
/// Errors: no Landlock; a path that can't be looked at.
Result<UniqueFd> MakeRuleset(const VisiblePaths& paths);

/// Puts this process and all that it starts under the ruleset, with no_new_privs. Returns errno or 0.
int Restrict(int ruleset);

}  // namespace imgd
