#include "trainer/report/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace imgd::report {

Result<RecordFile> RecordFile::Open(const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot open {}", path.native()));
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) return FailErrno(errno, fmt::format("cannot stat {}", path.native()));
  RecordFile file(path, std::move(fd));
  file.bytes_ = static_cast<uint64_t>(facts.st_size);
  return file;
}

Result<RecordFile> RecordFile::Create(const std::filesystem::path& path, std::string_view head) {
  IMGD_TRY(MakeFolders(path.parent_path()));
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot make {}", path.native()));
  RecordFile file(path, std::move(fd));
  if (auto written = file.Append(head); !written) {
    ::unlink(path.c_str());
    return tl::unexpected(written.error());
  }
  return file;
}

Status RecordFile::Append(std::string_view record) {
  if (torn_) IMGD_TRY(CutAt(bytes_));
  if (auto written = WriteAll(fd_.get(), record, path_.native()); !written) {
    torn_ = true;
    IMGD_TRY(CutAt(bytes_));
    return written;
  }
  bytes_ += record.size();
  return {};
}

Status RecordFile::CutAt(uint64_t bytes) {
  if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) {
    return FailErrno(errno, fmt::format("cannot cut the incomplete end off {}", path_.native()));
  }
  bytes_ = bytes;
  torn_ = false;
  return {};
}

Status RecordQueue::Add(std::string record) {
  waiting_bytes_ += record.size();
  waiting_.push_back(std::move(record));
  auto flushed = Flush();
  while (waiting_bytes_ > kMostBytes && waiting_.size() > 1) {
    waiting_bytes_ -= waiting_.front().size();
    waiting_.pop_front();
  }
  return flushed;
}

Status RecordQueue::Flush() {
  if (waiting_.empty()) return {};
  if (!file_) {
    IMGD_ASSIGN(file_, open_());
  }
  while (!waiting_.empty()) {
    IMGD_TRY(file_->Append(waiting_.front()));
    waiting_bytes_ -= waiting_.front().size();
    waiting_.pop_front();
  }
  return {};
}

}  // namespace imgd::report
