#pragma once

#include <array>
#include <filesystem>

#include "common/error.h"
#include "common/files.h"

/// What is in imgd's state folder.
namespace imgd {

/// Of a backup: what can't be made anew. Which of those after the first two are there depends on how imgd is
/// set up.
inline constexpr std::array kBackedUpFiles = {"state.db", "metrics.db", "ca.crt", "ca.key", "admin.token"};

/// Where a backup is while it is put into the folder's place: imgd does not start as long as this is there.
inline constexpr const char* kHalfRestored = "restore.half-done";

/// Held as long as somebody uses the folder; the system lets go of it however that ends. Errors:
/// kAlreadyExists when another imgd does.
Result<UniqueFd> LockStateFolder(const std::filesystem::path& folder);

}  // namespace imgd
