#include "trainer/report/events_file.h"

#include <utility>

#include "common/files.h"

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
  IMGD_ASSIGN(auto records, RecordFile::Open(path));
  EventsFile file(std::move(records));
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
  if (at != content.size()) IMGD_TRY(file.file_.CutAt(at));
  return file;
}

Status EventsFile::Append(std::string_view payload) { return file_.Append(Frame(payload)); }

}  // namespace imgd::report
