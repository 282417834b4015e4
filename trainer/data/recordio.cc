#include "trainer/data/recordio.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace imgd::data {
namespace {

constexpr uint32_t kMostLabels = 65536;

struct Piece {
  uint32_t kind = kWholeRecord;
  uint64_t begin = 0;  ///< of its content
  uint64_t size = 0;
  uint64_t next = 0;  ///< of the next part
};

tl::unexpected<Error> Bad(const Source& shard, uint64_t at, std::string_view what) {
  return Fail(ErrorCode::kDataLoss, "{} is no good RecordIO file at byte {}: {}", shard.name(), at, what);
}

Result<Piece> ReadPiece(const Source& shard, uint64_t at) {
  if (shard.size() - at < kRecordHeaderBytes) return Bad(shard, at, "it ends within a record");
  std::array<uint8_t, kRecordHeaderBytes> header{};
  IMGD_TRY(shard.ReadAt(at, header));
  uint32_t magic = 0;
  uint32_t word = 0;
  std::memcpy(&magic, header.data(), 4);
  std::memcpy(&word, header.data() + 4, 4);
  if (magic != kRecordMagic) return Bad(shard, at, "no record begins here");
  Piece part{.kind = word >> 29, .begin = at + kRecordHeaderBytes, .size = word & 0x1FFFFFFFU};
  const uint64_t padded = (part.size + 3) / 4 * 4;
  if (padded > shard.size() - part.begin) {
    return Bad(shard, at,
               fmt::format("a record of {} bytes, where {} are left", part.size, shard.size() - part.begin));
  }
  part.next = part.begin + padded;
  return part;
}

/// The whole of a record, as it lies in the file.
struct Record {
  Piece first;
  bool in_parts = false;
  uint64_t next = 0;
};

Result<Record> FindRecord(const Source& shard, uint64_t at) {
  Record record;
  IMGD_ASSIGN(record.first, ReadPiece(shard, at));
  record.next = record.first.next;
  if (record.first.kind == kWholeRecord) return record;
  if (record.first.kind != kFirstPiece) return Bad(shard, at, "a record's later part without its first");
  record.in_parts = true;
  for (uint32_t kind = kFirstPiece; kind != kLastPiece;) {
    const uint64_t from = record.next;
    IMGD_ASSIGN(const Piece part, ReadPiece(shard, from));
    if (part.kind != kMiddlePiece && part.kind != kLastPiece)
      return Bad(shard, from, "a record in parts that has no last one");
    kind = part.kind;
    record.next = part.next;
  }
  return record;
}

struct ImageHeader {
  uint64_t size = kImageHeaderBytes;  ///< with the labels that follow it
  int32_t label = 0;
  uint64_t id = 0;
};

Result<ImageHeader> ParseImageHeader(const Source& shard, uint64_t at, std::span<const uint8_t> content) {
  if (content.size() < kImageHeaderBytes) return Bad(shard, at, "the record is too short for an image's");
  ImageHeader header;
  uint32_t flag = 0;
  float label = 0;
  std::memcpy(&flag, content.data(), 4);
  std::memcpy(&label, content.data() + 4, 4);
  std::memcpy(&header.id, content.data() + 8, 8);
  if (flag > kMostLabels) return Bad(shard, at, fmt::format("an image with {} labels", flag));
  header.size += uint64_t{flag} * 4;
  if (content.size() < header.size) return Bad(shard, at, "the record is too short for its labels");
  if (flag > 0) std::memcpy(&label, content.data() + kImageHeaderBytes, 4);
  if (!(label >= 0 && label < 1e9F && label == std::floor(label)))
    return Bad(shard, at, fmt::format("the label {} is no class", label));
  header.label = static_cast<int32_t>(label);
  return header;
}

/// The image's header with its labels, or as much as there is of it.
Result<std::vector<uint8_t>> ReadStart(const Source& shard, const Piece& part) {
  std::vector<uint8_t> start(std::min(part.size, kImageHeaderBytes));
  IMGD_TRY(shard.ReadAt(part.begin, start));
  uint32_t labels = 0;
  if (start.size() == kImageHeaderBytes) std::memcpy(&labels, start.data(), 4);
  const uint64_t whole = kImageHeaderBytes + uint64_t{std::min(labels, kMostLabels)} * 4;
  start.resize(std::min(part.size, whole));
  IMGD_TRY(shard.ReadAt(part.begin, start));
  return start;
}

}  // namespace

Result<std::vector<uint8_t>> ReadRecord(const Source& shard, uint64_t offset, uint64_t most_bytes) {
  std::vector<uint8_t> content;
  for (uint64_t at = offset;;) {
    IMGD_ASSIGN(const Piece part, ReadPiece(shard, at));
    if (part.kind == kMiddlePiece || part.kind == kLastPiece) {
      // The writer cut where the content had the magic number, and left it out.
      const auto* magic = reinterpret_cast<const uint8_t*>(&kRecordMagic);
      content.insert(content.end(), magic, magic + 4);
    }
    if (content.size() + part.size > most_bytes) {
      return Bad(shard, offset, fmt::format("a record of more than {} bytes", most_bytes));
    }
    const size_t before = content.size();
    content.resize(before + part.size);
    IMGD_TRY(shard.ReadAt(part.begin, std::span(content).subspan(before)));
    if (part.kind == kWholeRecord || part.kind == kLastPiece) return content;
    at = part.next;
    if (at >= shard.size()) return Bad(shard, offset, "a record in parts that has no last one");
  }
}

Result<ShardIndex> ScanRecordIoShard(const Source& shard) {
  ShardIndex index{.shard_bytes = shard.size()};
  for (uint64_t at = 0; at < shard.size();) {
    IMGD_ASSIGN(const Record record, FindRecord(shard, at));
    ImageHeader header;
    uint64_t size = record.first.size;
    if (record.in_parts) {
      IMGD_ASSIGN(const auto content, ReadRecord(shard, at, uint64_t{1} << 29));
      IMGD_ASSIGN(header, ParseImageHeader(shard, at, content));
      size = content.size();
    } else {
      IMGD_ASSIGN(const auto start, ReadStart(shard, record.first));
      IMGD_ASSIGN(header, ParseImageHeader(shard, at, start));
    }
    index.images.push_back({.key = std::to_string(header.id),
                            .offset = record.in_parts ? at : record.first.begin + header.size,
                            .size = static_cast<uint32_t>(size - header.size),
                            .label = header.label,
                            .skip = record.in_parts ? static_cast<uint32_t>(header.size) : 0});
    at = record.next;
  }
  return index;
}

}  // namespace imgd::data
