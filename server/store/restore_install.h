#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "common/error.h"

/// How a restored state takes the place of the one that a folder holds. Whatever breaks it off, the folder
/// has one of the two whole: the old one until BeginInstall() has returned, the new one once FinishInstall()
/// has, which imgd calls before it starts. Who calls them holds the folder's lock.
namespace imgd {

/// Called before each step; an error breaks off there, as a kill would. For tests; may be empty.
using BeforeStep = std::function<Status()>;

/// From its return on `staged`, a folder inside of `folder` with a whole state, is what holds. Its files are
/// synced already. `aside` is the name that the old state gets as a folder beside it; empty where there is
/// none. Errors: as the system calls; the old state holds then.
Status BeginInstall(const std::filesystem::path& folder, const std::filesystem::path& staged,
                    const std::string& aside, const BeforeStep& before_step = {});

/// Moves the old state aside and the new one into its place, from wherever that was broken off; and removes
/// what a restore or a backup that was killed has left. Returns where the old state is; empty where nothing
/// was to be done, or there was none. Errors: as the system calls; kFailedPrecondition for what was begun
/// otherwise. It can be called again then.
Result<std::filesystem::path> FinishInstall(const std::filesystem::path& folder,
                                            const BeforeStep& before_step = {});

/// Whether a restore was broken off in it that can't be finished, not being one of BeginInstall().
bool HoldsUnknownHalf(const std::filesystem::path& folder);

/// Whether the folder has something that would make way for a restored state.
bool HoldsState(const std::filesystem::path& folder);

}  // namespace imgd
