#include "trainer/data/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "trainer/data/crc32c.h"

namespace imgd::data {
namespace {

constexpr size_t kWriteBufferBytes = size_t{1} << 20;
// The kernel is told to begin writing after so many bytes, so that the fsync at the end is short.
constexpr uint64_t kStretchBytes = uint64_t{8} << 20;

}  // namespace

Result<OutputFile> OutputFile::Create(const std::string& path) {
  const std::string temporary = path + ".tmp";
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot create {}", temporary));
  return OutputFile(path, std::move(fd));
}

OutputFile::~OutputFile() {
  if (fd_.valid()) ::unlink(temporary().c_str());
}

Status OutputFile::Write(std::span<const uint8_t> bytes) {
  crc_ = Crc32c(bytes, crc_);
  bytes_ += bytes.size();
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return buffer_.size() < kWriteBufferBytes ? Status() : Flush();
}

Status OutputFile::Flush() {
  IMGD_TRY(WriteAll(fd_.get(), buffer_, temporary()));
  buffer_.clear();
  if (bytes_ - started_ >= kStretchBytes) {
    // A hint: where it fails, fsync does the work.
    ::sync_file_range(fd_.get(), static_cast<off64_t>(started_), static_cast<off64_t>(bytes_ - started_),
                      SYNC_FILE_RANGE_WRITE);
    started_ = bytes_;
  }
  return {};
}

Status OutputFile::Finish() {
  IMGD_TRY(Flush());
  if (::fsync(fd_.get()) != 0) return FailErrno(errno, fmt::format("cannot sync {}", temporary()));
  if (std::rename(temporary().c_str(), path_.c_str()) != 0) {
    return FailErrno(errno, fmt::format("cannot rename {} to {}", temporary(), path_));
  }
  fd_.reset();
  return {};
}

}  // namespace imgd::data
