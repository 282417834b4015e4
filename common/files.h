#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "common/error.h"

namespace imgd {

/// A file descriptor that closes itself.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

/// The whole file. Errors: as open(2) and read(2), naming the path; kInvalidArgument for a folder and for a
/// file of more than `most_bytes`, of which no more is read (it may be a device that never ends).
Result<std::string> ReadFile(const std::filesystem::path& path, size_t most_bytes = SIZE_MAX);

/// Replaces the file by `content` so that a crash leaves the old or the new one: temporary name, fsync of the
/// file, rename, fsync of the folder. Errors: as the system calls, naming the path.
Status WriteFileAtomically(const std::filesystem::path& path, std::string_view content);

/// Writes all of `data`, going on after short writes and EINTR.
Status WriteAll(int fd, std::string_view data, std::string_view what);

/// Raises how many files this process may have open to `wanted`, as far as the hard limit lets it; never
/// lowers it. Returns what holds then.
uint64_t AllowOpenFiles(uint64_t wanted);

/// Makes the folder and its parents. Errors name the path.
Status MakeFolders(const std::filesystem::path& path);

}  // namespace imgd
