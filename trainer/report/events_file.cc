#include "trainer/report/events_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace imgd::report {
namespace {

uint32_t LengthAt(std::string_view data, size_t at) {
  uint32_t length = 0;
  for (size_t i = 0; i < 4; ++i) {
    length |= static_cast<uint32_t>(static_cast<unsigned char>(data[at + i])) << (8 * i);
  }
  return length;
}

}  // namespace

std::string Frame(std::string_view payload) {
  std::string out;
  out.reserve(payload.size() + 4);
  for (size_t i = 0; i < 4; ++i) out.push_back(static_cast<char>((payload.size() >> (8 * i)) & 0xff));
  out.append(payload);
  return out;
}

Result<EventsFile> EventsFile::Open(const std::filesystem::path& path) {
  EventsFile file;
  file.path_ = path;
  file.fd_ = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file.fd_.valid()) return FailErrno(errno, fmt::format("cannot open {}", path.native()));
  IMGD_ASSIGN(const std::string content, ReadFile(path));
  size_t at = 0;
  while (content.size() - at >= 4) {
    const uint32_t length = LengthAt(content, at);
    if (length > kMaxFrame) {
      return Fail(ErrorCode::kDataLoss, "{}: the frame at byte {} claims {} bytes, at most {} are allowed",
                  path.native(), at, length, kMaxFrame);
    }
    if (content.size() - at - 4 < length) break;
    file.last_payload_ = content.substr(at + 4, length);
    at += 4 + length;
  }
  if (at != content.size() && ::ftruncate(file.fd_.get(), static_cast<off_t>(at)) != 0) {
    return FailErrno(errno, fmt::format("cannot cut the incomplete end off {}", path.native()));
  }
  file.size_ = at;
  return file;
}

Status EventsFile::Append(std::string_view payload) {
  const std::string frame = Frame(payload);
  if (auto written = WriteAll(fd_.get(), frame, path_.native()); !written) {
    if (::ftruncate(fd_.get(), static_cast<off_t>(size_)) != 0) {
      return FailErrno(errno, fmt::format("cannot cut the incomplete end off {}", path_.native()));
    }
    return written;
  }
  size_ += frame.size();
  return {};
}

}  // namespace imgd::report
