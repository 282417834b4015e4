#include "trainer/data/source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/files.h"

namespace imgd::data {
namespace {

class FileSource final : public Source {
 public:
  FileSource(const std::string& path, UniqueFd fd, uint64_t size, std::string version)
      : Source(path, size, std::move(version)), fd_(std::move(fd)) {}

  Status ReadAt(uint64_t offset, std::span<uint8_t> out) const override {
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t n =
          ::pread(fd_.get(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return FailErrno(errno, fmt::format("cannot read {}", name()));
      if (n == 0) {
        return Fail(ErrorCode::kDataLoss, "{} ends at byte {}, before byte {}", name(), offset + done,
                    offset + out.size());
      }
      done += static_cast<size_t>(n);
    }
    return {};
  }

  void WillRead(std::span<const ByteRange> ranges) const override {
    for (const auto& range : ranges) {
      ::posix_fadvise(fd_.get(), static_cast<off_t>(range.offset), static_cast<off_t>(range.size),
                      POSIX_FADV_WILLNEED);
    }
  }

 private:
  UniqueFd fd_;
};

}  // namespace

Result<std::string> ReadText(const Source& source, uint64_t offset, uint64_t size) {
  std::string text(size, '\0');
  IMGD_TRY(source.ReadAt(offset, {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  return text;
}

Result<std::shared_ptr<Source>> OpenFileSource(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot open {}", path));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return FailErrno(errno, fmt::format("cannot look at {}", path));
  if (!S_ISREG(status.st_mode)) {
    return Fail(ErrorCode::kInvalidArgument, "{} is not a plain file", path);
  }
  std::string version =
      fmt::format("{}-{}.{:09}", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  return std::make_shared<FileSource>(path, std::move(fd), static_cast<uint64_t>(status.st_size),
                                      std::move(version));
}

Status Part::ReadUntil(uint64_t offset, std::span<uint8_t> out, const std::stop_token& stop) const {
  if (offset > size() || out.size() > size() - offset) {
    return Fail(ErrorCode::kDataLoss, "{} ends at byte {}, before byte {}", name(), size(),
                offset + out.size());
  }
  return whole_.ReadUntil(offset_ + offset, out, stop);
}

}  // namespace imgd::data
