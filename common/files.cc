#include "common/files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace imgd {

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

void UniqueFd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<std::string> ReadFile(const std::filesystem::path& path, size_t most_bytes) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot open {}", path.native()));
  std::string out;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EISDIR)
      return Fail(ErrorCode::kInvalidArgument, "{} is a folder where a file is expected", path.native());
    if (n < 0) return FailErrno(errno, fmt::format("cannot read {}", path.native()));
    if (n == 0) return out;
    if (static_cast<size_t>(n) > most_bytes - out.size()) {
      return Fail(ErrorCode::kInvalidArgument, "{} has more than the {} bytes that are allowed",
                  path.native(), most_bytes);
    }
    out.append(buffer, static_cast<size_t>(n));
  }
}

Status WriteAll(int fd, std::string_view data, std::string_view what) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno(errno, fmt::format("cannot write {}", what));
    data.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Status WriteFileAtomically(const std::filesystem::path& path, std::string_view content) {
  const std::string temporary = fmt::format("{}.tmp.{}", path.native(), ::getpid());
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot create {}", temporary));
  auto written = WriteAll(fd.get(), content, temporary);
  if (written && ::fsync(fd.get()) != 0) written = FailErrno(errno, fmt::format("cannot sync {}", temporary));
  fd.reset();
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0) {
    written = FailErrno(errno, fmt::format("cannot rename {} to {}", temporary, path.native()));
  }
  if (!written) {
    ::unlink(temporary.c_str());
    return written;
  }
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  UniqueFd folder_fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_fd.valid() || ::fsync(folder_fd.get()) != 0) {
    return FailErrno(errno, fmt::format("cannot sync folder {}", folder.native()));
  }
  return {};
}

uint64_t AllowOpenFiles(uint64_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return limit.rlim_cur;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, wanted);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : before;
}

Status MakeFolders(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return FailErrno(error.value(), fmt::format("cannot create folder {}", path.native()));
  return {};
}

}  // namespace imgd
