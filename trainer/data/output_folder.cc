#include "trainer/data/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace imgd::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = ".convert.lock";
// Another conversion that ends just now may take the file away, so often at most.
constexpr int kLockTries = 100;

/// Whether the path still leads to the open file.
bool IsAt(int fd, const std::string& path) {
  struct stat ours {};
  struct stat there {};
  return ::fstat(fd, &ours) == 0 && ::stat(path.c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
         ours.st_ino == there.st_ino;
}

std::vector<fs::path> MissingOf(fs::path path) {
  std::vector<fs::path> missing;
  std::error_code error;
  for (path = path.lexically_normal(); !path.empty() && !fs::exists(path, error); path = path.parent_path())
    missing.push_back(path);
  return missing;
}

}  // namespace

Result<OutputFolder> OutputFolder::Lock(const std::string& path) {
  const std::string name = (fs::path(path) / kLockName).string();
  auto made = MissingOf(path);
  for (int i = 0; i < kLockTries; ++i) {
    IMGD_TRY(MakeFolders(path));
    UniqueFd fd(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
    if (!fd.valid() && errno == ENOENT) continue;
    if (!fd.valid()) return FailErrno(errno, fmt::format("cannot create {}", name));
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return FailErrno(errno, fmt::format("cannot lock {}", name));
      return Fail(ErrorCode::kAlreadyExists, "another conversion is writing to {}; wait for its end", path);
    }
    if (IsAt(fd.get(), name)) return OutputFolder(path, std::move(fd), std::move(made));
  }
  return Fail(ErrorCode::kAlreadyExists, "other conversions are writing to {}", path);
}

OutputFolder::~OutputFolder() {
  if (!lock_.valid()) return;
  ::unlink(Path(kLockName).c_str());
  for (const auto& folder : made_) {
    if (::rmdir(folder.c_str()) != 0) break;
  }
}

bool OutputFolder::IsEmpty() const {
  std::error_code error;
  for (fs::directory_iterator it(path_, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename() != kLockName) return false;
  }
  return !error;
}

}  // namespace imgd::data
