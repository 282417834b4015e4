#include "server/store/log_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/files.h"

namespace imgd {
namespace {

/// A line that begins at or after `offset`, and where; nothing where none does before `end`.
struct LineAt {
  uint64_t offset = 0;
  uint64_t number = 0;
};

Result<std::optional<LineAt>> LineFrom(const std::filesystem::path& path, uint64_t offset, uint64_t end) {
  // A line begins at 0 and behind each newline, that in front of `offset` too.
  const uint64_t begin = offset == 0 ? 0 : offset - 1;
  if (begin >= end) return std::nullopt;
  IMGD_ASSIGN(const auto text, ReadAt(path, begin, std::min<uint64_t>(end - begin, 2 * kLogChunk)));
  if (!text) return std::nullopt;
  for (size_t at = offset == 0 ? 0 : text->find('\n') + 1; at < text->size();) {
    const size_t newline = text->find('\n', at);
    if (newline == std::string::npos || (at == 0 && offset != 0)) break;
    if (const auto line = DecodeLine(std::string_view(*text).substr(at, newline - at)))
      return LineAt{begin + at, line->number};
    at = newline + 1;
  }
  return std::nullopt;
}

/// The same for one segment of `bytes`.
Result<uint64_t> FindInSegment(const std::filesystem::path& path, uint64_t bytes, uint64_t number) {
  uint64_t low = 0;
  uint64_t high = bytes;  // the line begins within [low, high]
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    IMGD_ASSIGN(const auto line, LineFrom(path, middle, bytes));
    if (!line || line->number >= number) {
      high = middle;
    } else {
      low = line->offset + 1;
    }
  }
  IMGD_ASSIGN(const auto line, LineFrom(path, low, bytes));
  return line ? line->offset : bytes;
}

}  // namespace

Result<std::optional<std::string>> ReadAt(const std::filesystem::path& path, uint64_t offset, size_t most) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return std::nullopt;
  if (!fd.valid()) return FailErrno(errno, "cannot open " + path.native());
  std::string out(most, '\0');
  size_t done = 0;
  while (done < most) {
    const ssize_t n = ::pread(fd.get(), out.data() + done, most - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno(errno, "cannot read " + path.native());
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  out.resize(done);
  return out;
}

uint64_t StoredBytes(const std::filesystem::path& path, const LogPosition& stored, uint64_t segment) {
  if (segment == stored.segment) return stored.segment_bytes;
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : size;
}

uint64_t OldestSegment(const LogPosition& stored) { return stored.segment == 0 ? 0 : stored.segment - 1; }

Result<LogPlace> FindLine(const std::filesystem::path& folder, const LogStream& stream,
                          const LogPosition& stored, uint64_t number) {
  for (uint64_t segment = OldestSegment(stored); segment <= stored.segment; ++segment) {
    const auto path = LogFile(folder, stream, segment);
    const uint64_t bytes = StoredBytes(path, stored, segment);
    IMGD_ASSIGN(const uint64_t offset, FindInSegment(path, bytes, number));
    if (offset < bytes) return LogPlace{segment, offset};
  }
  return LogPlace{stored.segment, stored.segment_bytes};
}

StoredLine RemovedLines(uint64_t first, uint64_t last, int64_t time_us) {
  return {.number = last,
          .time_us = time_us,
          .is_stderr = true,
          .text = fmt::format("[imgd: lines {} to {} were removed to keep the log's size]", first, last)};
}

}  // namespace imgd
