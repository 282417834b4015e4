#include "trainer/data/file_kind.h"

#include <cstddef>
#include <cstring>

#include "trainer/data/jpeg_markers.h"

namespace imgd::data {
namespace {

constexpr uint8_t kPngStart[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

void LookAtJpegMarkers(std::span<const uint8_t> file, FileKind& facts) {
  JpegSegments segments(file);
  while (const auto segment = segments.Next()) {
    if (!IsStartOfFrame(segment->marker) || segment->content.size() < 6 || facts.components != 0) continue;
    facts.height = Big16(segment->content, 1);
    facts.width = Big16(segment->content, 3);
    facts.components = segment->content[5];
  }
  facts.has_end = HasEndOfImage(segments.scan());
}

}  // namespace

FileKind LookAtFile(std::span<const uint8_t> file) {
  FileKind facts;
  if (file.size() >= 3 && file[0] == 0xFF && file[1] == 0xD8 && file[2] == 0xFF) {
    facts.kind = FileKind::Kind::kJpeg;
    LookAtJpegMarkers(file, facts);
  } else if (file.size() >= sizeof kPngStart && std::memcmp(file.data(), kPngStart, sizeof kPngStart) == 0) {
    facts.kind = FileKind::Kind::kPng;
    if (file.size() >= 24) {
      facts.width = Big32(file, 16);
      facts.height = Big32(file, 20);
    }
  }
  return facts;
}

}  // namespace imgd::data
