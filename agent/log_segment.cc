#include "agent/log_segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace imgd {
namespace {

constexpr size_t kHeaderBytes = 8;
constexpr size_t kBodyPrefixBytes = 17;

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? (value >> 1) ^ 0xEDB88320U : value >> 1;
    table[i] = value;
  }
  return table;
}

uint32_t Crc32(std::string_view data) {
  static constexpr auto kTable = MakeCrcTable();
  uint32_t crc = 0xFFFFFFFFU;
  for (const char c : data) crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFFU] ^ (crc >> 8);
  return ~crc;
}

void PutLittle(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xFF);
}

uint64_t GetLittle(std::string_view data, size_t offset, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) {
    value |= static_cast<uint64_t>(static_cast<unsigned char>(data[offset + i])) << (8 * i);
  }
  return value;
}

template <typename T>
bool ParseWhole(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

void AppendLogRecord(std::string& out, const LogRecord& record) {
  std::string body;
  body.reserve(kBodyPrefixBytes + record.text.size());
  PutLittle(body, record.number, 8);
  PutLittle(body, static_cast<uint64_t>(record.time_us), 8);
  body += record.is_stderr ? '\1' : '\0';
  body += record.text;
  PutLittle(out, body.size(), 4);
  PutLittle(out, Crc32(body), 4);
  out += body;
}

LogParse ParseLogRecord(std::string_view data, LogRecord* record, size_t* used) {
  if (data.size() < kHeaderBytes) return LogParse::kPartial;
  const uint64_t length = GetLittle(data, 0, 4);
  if (length < kBodyPrefixBytes || length > kBodyPrefixBytes + kMaxLineBytes) return LogParse::kCorrupt;
  if (data.size() < kHeaderBytes + length) return LogParse::kPartial;
  const std::string_view body = data.substr(kHeaderBytes, length);
  if (Crc32(body) != GetLittle(data, 4, 4)) return LogParse::kCorrupt;
  record->number = GetLittle(body, 0, 8);
  record->time_us = static_cast<int64_t>(GetLittle(body, 8, 8));
  record->is_stderr = body[16] != '\0';
  record->text = body.substr(kBodyPrefixBytes);
  *used = kHeaderBytes + length;
  return LogParse::kRecord;
}

std::string LogSegment::Name() const { return fmt::format("log.{}.{}", local_rank, first_line); }

std::optional<LogSegment> LogSegment::Parse(std::string_view name) {
  if (!name.starts_with("log.")) return std::nullopt;
  name.remove_prefix(4);
  const auto dot = name.find('.');
  LogSegment segment;
  if (dot == std::string_view::npos || !ParseWhole(name.substr(0, dot), &segment.local_rank) ||
      !ParseWhole(name.substr(dot + 1), &segment.first_line)) {
    return std::nullopt;
  }
  return segment;
}

std::vector<LogSegment> ListLogSegments(const std::filesystem::path& dir, uint32_t local_rank) {
  std::vector<LogSegment> segments;
  std::error_code error;
  for (std::filesystem::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    const auto segment = LogSegment::Parse(it->path().filename().native());
    if (segment && segment->local_rank == local_rank) segments.push_back(*segment);
  }
  std::sort(segments.begin(), segments.end());
  return segments;
}

}  // namespace imgd
