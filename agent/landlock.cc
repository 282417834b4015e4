#include "agent/landlock.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

namespace imgd {
namespace {

/// With it files may be renamed from folder to folder, which checkpoints are; Linux 5.19.
constexpr int kNeededLandlock = 2;
constexpr int kKnowsTruncate = 3;
constexpr uint64_t kTruncate = 1ULL << 14;  // LANDLOCK_ACCESS_FS_TRUNCATE, which older headers lack

constexpr uint64_t kReading =
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;

/// All that a kernel of that version can forbid and is about the contents of folders.
uint64_t AllRights(int version) {
  return (LANDLOCK_ACCESS_FS_REFER << 1) - 1 + (version >= kKnowsTruncate ? kTruncate : 0);
}

/// Those that a file can have.
uint64_t FileRights(uint64_t rights) {
  return rights & (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                   kTruncate);
}

Status Allow(int ruleset, const std::string& path, uint64_t rights) {
  const UniqueFd fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!fd.valid() && (errno == ENOENT || errno == ENOTDIR)) return {};
  struct stat facts {};
  if (!fd.valid() || ::fstat(fd.get(), &facts) != 0)
    return FailErrno(errno, fmt::format("cannot look at {}, which ranks are to see", path));
  landlock_path_beneath_attr rule{.allowed_access = S_ISDIR(facts.st_mode) ? rights : FileRights(rights),
                                  .parent_fd = fd.get()};
  if (::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
    return FailErrno(errno, fmt::format("cannot let ranks see {}", path));
  return {};
}

}  // namespace

bool IsWithin(const std::string& path, const std::vector<std::string>& folders) {
  std::error_code error;
  const auto real = std::filesystem::weakly_canonical(path, error);
  return std::any_of(folders.begin(), folders.end(), [&](const std::string& folder) {
    const auto rest = real.lexically_relative(std::filesystem::weakly_canonical(folder, error));
    return !error && !rest.empty() && *rest.begin() != "..";
  });
}

Result<int> LandlockVersion() {
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version >= kNeededLandlock) return static_cast<int>(version);
  const std::string found = version >= 0     ? fmt::format("this kernel has version {} of it", version)
                            : errno == EPERM ? "a filter of system calls forbids it"
                            : errno == EOPNOTSUPP
                                ? "this kernel has it switched off (lsm= on its command line)"
                                : "this kernel has none";
  return Fail(ErrorCode::kFailedPrecondition, "needs Landlock of version {} (Linux 5.19), and {}",
              kNeededLandlock, found);
}

Result<UniqueFd> MakeRuleset(const VisiblePaths& paths) {
  IMGD_ASSIGN(const int version, LandlockVersion());
  const uint64_t all = AllRights(version);
  // The first field alone, which every version has.
  const uint64_t handled = all;
  UniqueFd ruleset(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0)));
  if (!ruleset.valid()) return FailErrno(errno, "cannot make a Landlock ruleset");
  for (const auto& path : paths.read) IMGD_TRY(Allow(ruleset.get(), path, kReading));
  for (const auto& path : paths.write) IMGD_TRY(Allow(ruleset.get(), path, all));
  // Devices have rights of their own; nothing can be made or removed there.
  IMGD_TRY(Allow(ruleset.get(), "/dev", kReading | LANDLOCK_ACCESS_FS_WRITE_FILE));
  return ruleset;
}

int Restrict(int ruleset) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  return ::syscall(SYS_landlock_restrict_self, ruleset, 0) == 0 ? 0 : errno;
}

}  // namespace imgd
