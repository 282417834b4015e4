#pragma once

#include <filesystem>
#include <string>

#include "common/clock.h"
#include "common/error.h"
#include "common/ids.h"
#include "server/store/restore_install.h"

namespace imgd {

/// What is to be put where.
struct RestoreOrder {
  std::filesystem::path file;       ///< as BackupSource made it
  std::filesystem::path state_dir;  ///< made where it is not there
  bool replace = false;             ///< what the folder holds is set aside; else it must hold no state
  WallTime now;
  BeforeStep before_step = {};  ///< of those that put it into place; for tests
};

/// What came of it.
struct Restored {
  WallTime made;        ///< when the backup was
  std::string version;  ///< of the imgd that made it
  JobId next_job;
  Generation first_generation;
  std::filesystem::path set_aside;  ///< where the state is that the folder held; empty for none
};

/// "2026-11-24 17:05:09 UTC".
std::string RestoreTimeText(WallTime time);

/// Puts a backup into the place of an imgd's state. The file is looked through first: its sums, each
/// database's integrity and schema. Then the numbers of jobs, starts and events are raised beyond those that
/// may have been given out since the backup, by what the time since then allows for: 10,000 and 10 a second
/// for jobs, as many and one a second for starts. So none is used twice, a start from after the backup is
/// fenced off, and a second restore of the same file is beyond the first one.
///
/// Broken off anywhere, it leaves the folder's own state or the backup's, whole (restore_install.h).
///
/// The jobs' logs stay where they are; of those that the backup does not know they are set aside too. Errors:
/// kAlreadyExists for a folder that another imgd uses, or that holds a state (without `replace`); kDataLoss
/// for a file that is damaged; kFailedPrecondition for one of a newer imgd, and for a clock that is behind
/// the backup's time.
Result<Restored> RestoreBackup(const RestoreOrder& order);

}  // namespace imgd
