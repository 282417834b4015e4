#include "server/store/log_reader.h"

#include <algorithm>
#include <optional>

#include "server/store/log_files.h"

namespace imgd {
namespace {

/// Offset of the `lines`-th line from the end of the segment's first `bytes`; how many of them there are.
Result<std::pair<uint64_t, uint64_t>> FindFromEnd(const std::filesystem::path& path, uint64_t bytes,
                                                  uint64_t lines) {
  uint64_t found = 0;
  uint64_t end = bytes;
  while (end > 0) {
    const uint64_t begin = end > kLogChunk ? end - kLogChunk : 0;
    IMGD_ASSIGN(const auto text, ReadAt(path, begin, static_cast<size_t>(end - begin)));
    if (!text) break;
    for (size_t i = text->size(); i-- > 0;) {
      // The newline at the very end closes the last line; each one before it begins a line.
      if ((*text)[i] != '\n' || begin + i + 1 == bytes) continue;
      if (++found == lines) return std::pair(begin + i + 1, found);
    }
    end = begin;
  }
  return std::pair(uint64_t{0}, bytes > 0 ? found + 1 : 0);
}

}  // namespace

Result<LogCursor> TailCursor(const std::filesystem::path& folder, const LogStream& stream,
                             const LogPosition& stored, uint64_t lines) {
  LogCursor cursor{.segment = OldestSegment(stored)};
  if (lines == 0 || stored.last_line <= lines) return cursor;
  uint64_t wanted = lines;
  for (uint64_t segment = stored.segment + 1; segment-- > OldestSegment(stored);) {
    const auto path = LogFile(folder, stream, segment);
    IMGD_ASSIGN(const auto found, FindFromEnd(path, StoredBytes(path, stored, segment), wanted));
    cursor.segment = segment;
    cursor.offset = found.first;
    if (found.second >= wanted) break;
    wanted -= found.second;
  }
  // Lines that are missing have numbers too, so the number is read and not counted.
  IMGD_ASSIGN(const auto text, ReadAt(LogFile(folder, stream, cursor.segment), cursor.offset, kLogChunk));
  if (!text) return cursor;
  if (const auto first = DecodeLine(text->substr(0, text->find('\n')))) cursor.last_line = first->number - 1;
  return cursor;
}

Result<LogCursor> CursorAfter(const std::filesystem::path& folder, const LogStream& stream,
                              const LogPosition& stored, uint64_t number) {
  // Where lines were removed the cursor stays before them, so that what is read says so.
  IMGD_ASSIGN(const auto place, FindLine(folder, stream, stored, number + 1));
  return LogCursor{.last_line = number, .segment = place.segment, .offset = place.offset};
}

Result<std::vector<StoredLine>> ReadLines(const std::filesystem::path& folder, const LogStream& stream,
                                          const LogPosition& stored, LogCursor& cursor, size_t most_bytes) {
  std::vector<StoredLine> out;
  if (cursor.last_line >= stored.last_line) return out;
  if (cursor.segment < OldestSegment(stored)) cursor = {cursor.last_line, OldestSegment(stored), 0};
  while (out.empty() && cursor.segment <= stored.segment) {
    const auto path = LogFile(folder, stream, cursor.segment);
    const uint64_t bytes = StoredBytes(path, stored, cursor.segment);
    const uint64_t left = bytes > cursor.offset ? bytes - cursor.offset : 0;
    IMGD_ASSIGN(const auto text,
                ReadAt(path, cursor.offset, static_cast<size_t>(std::min<uint64_t>(left, most_bytes))));
    const size_t whole = text ? text->rfind('\n') + 1 : 0;  // npos + 1 is 0
    if (whole == 0) {
      if (cursor.segment == stored.segment) break;
      ++cursor.segment;
      cursor.offset = 0;
      continue;
    }
    for (size_t begin = 0; begin < whole;) {
      const size_t end = text->find('\n', begin);
      auto line = DecodeLine(std::string_view(*text).substr(begin, end - begin));
      begin = end + 1;
      if (!line || line->number <= cursor.last_line) continue;
      if (line->number > cursor.last_line + 1 && !line->text.starts_with(kAgentNotice)) {
        out.push_back(RemovedLines(cursor.last_line + 1, line->number - 1, line->time_us));
      }
      cursor.last_line = line->number;
      out.push_back(std::move(*line));
    }
    cursor.offset += whole;
  }
  return out;
}

}  // namespace imgd
