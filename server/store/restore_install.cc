#include "server/store/restore_install.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "common/files.h"
#include "server/store/database.h"
#include "server/store/state_folder.h"

namespace imgd {
namespace {

namespace fs = std::filesystem;

/// What of a state folder makes way for a backup.
constexpr std::array kMovedAside = {"state.db",       "state.db-wal",   "state.db-shm", "metrics.db",
                                    "metrics.db-wal", "metrics.db-shm", "ca.crt",       "ca.key",
                                    "admin.token",    "server.crt",     "server.key",   "logs"};

// In kHalfRestored, beside the new state's files:
constexpr const char* kAsideName = "set-aside";      ///< the name of the old state's folder
constexpr const char* kOldIsAside = "old-is-aside";  ///< there once all of it is in that

Status Before(const BeforeStep& step) { return step ? step() : Status(); }

Status Rename(const fs::path& from, const fs::path& to, const BeforeStep& before_step) {
  IMGD_TRY(Before(before_step));
  if (::rename(from.c_str(), to.c_str()) == 0) return {};
  return FailErrno(errno, fmt::format("cannot rename {} to {}", from.native(), to.native()));
}

Status SyncFolder(const fs::path& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid() && ::fsync(fd.get()) == 0) return {};
  return FailErrno(errno, "cannot sync folder " + folder.native());
}

/// What is there already was moved by a call that was broken off.
Status MoveAside(const fs::path& folder, const fs::path& aside, const BeforeStep& before_step) {
  if (!fs::exists(aside)) {
    IMGD_TRY(Before(before_step));
    if (::mkdir(aside.c_str(), 0700) != 0) return FailErrno(errno, "cannot create folder " + aside.native());
  }
  for (const char* name : kMovedAside) {
    if (fs::exists(folder / name)) IMGD_TRY(Rename(folder / name, aside / name, before_step));
  }
  return SyncFolder(aside);
}

/// The logs of jobs that the new state knows come back.
Status TakeBackLogs(const fs::path& aside, const fs::path& folder, const BeforeStep& before_step) {
  if (aside.empty() || !fs::exists(aside / "logs")) return {};
  IMGD_TRY(MakeFolders(folder / "logs"));
  IMGD_ASSIGN(auto state, Database::OpenForReading(folder / "state.db"));
  IMGD_ASSIGN(const auto jobs, state.Guard([&state] {
    std::vector<std::string> ids;
    auto& query = state.Prepare("SELECT id FROM jobs");
    while (query.executeStep()) ids.push_back(query.getColumn(0).getString());
    query.reset();
    return ids;
  }));
  for (const auto& job : jobs) {
    if (fs::exists(aside / "logs" / job))
      IMGD_TRY(Rename(aside / "logs" / job, folder / "logs" / job, before_step));
  }
  return SyncFolder(folder / "logs");
}

Result<fs::path> MoveIn(const fs::path& folder, const BeforeStep& before_step) {
  const fs::path half = folder / kHalfRestored;
  if (HoldsUnknownHalf(folder)) {
    return Fail(ErrorCode::kFailedPrecondition,
                "a restore into {} was broken off: imgd --restore FILE --replace does it again",
                folder.native());
  }
  IMGD_ASSIGN(const std::string name, ReadFile(half / kAsideName));
  const fs::path aside = name.empty() ? fs::path() : folder / name;
  if (!fs::exists(half / kOldIsAside)) {
    if (!aside.empty()) IMGD_TRY(MoveAside(folder, aside, before_step));
    IMGD_TRY(SyncFolder(folder));
    IMGD_TRY(Before(before_step));
    IMGD_TRY(WriteFileAtomically(half / kOldIsAside, ""));
  }
  for (const char* file : kBackedUpFiles) {
    if (fs::exists(half / file)) IMGD_TRY(Rename(half / file, folder / file, before_step));
  }
  IMGD_TRY(TakeBackLogs(aside, folder, before_step));
  IMGD_TRY(SyncFolder(folder));
  // At once, so that no half of it is found.
  IMGD_TRY(Rename(half, folder / kRestoreStaging, before_step));
  return aside;
}

}  // namespace

bool HoldsUnknownHalf(const fs::path& folder) {
  return fs::exists(folder / kHalfRestored) && !fs::exists(folder / kHalfRestored / kAsideName);
}

bool HoldsState(const fs::path& folder) {
  return std::any_of(kMovedAside.begin(), kMovedAside.end(),
                     [&folder](const char* name) { return fs::exists(folder / name); });
}

Status BeginInstall(const fs::path& folder, const fs::path& staged, const std::string& aside,
                    const BeforeStep& before_step) {
  IMGD_TRY(WriteFileAtomically(staged / kAsideName, aside));  // and syncs the folder
  IMGD_TRY(Rename(staged, folder / kHalfRestored, before_step));
  return SyncFolder(folder);
}

Result<fs::path> FinishInstall(const fs::path& folder, const BeforeStep& before_step) {
  const auto remove_leftovers = [&folder] {
    std::error_code ignored;
    for (const char* name : {kRestoreStaging, kBackupStaging}) fs::remove_all(folder / name, ignored);
  };
  remove_leftovers();
  if (!fs::exists(folder / kHalfRestored)) return fs::path();
  auto aside = MoveIn(folder, before_step);
  if (!aside) {
    if (!HoldsUnknownHalf(folder))
      aside.error().hint = "the new state is whole: imgd goes on from here when it starts";
    return aside;
  }
  remove_leftovers();
  return aside;
}

}  // namespace imgd
