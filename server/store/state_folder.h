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

/// Where a whole state is while it is put into the folder's place: imgd finishes that before it starts.
inline constexpr const char* kHalfRestored = "restore.half-done";
/// Where one is made ready for that, and where a backup's copies are made: of no use to anybody else.
inline constexpr const char* kRestoreStaging = "restore.tmp";
inline constexpr const char* kBackupStaging = "backup.tmp";

/// Held as long as somebody uses the folder; the system lets go of it however that ends. Errors:
/// kAlreadyExists when another imgd does.
Result<UniqueFd> LockStateFolder(const std::filesystem::path& folder);

}  // namespace imgd
