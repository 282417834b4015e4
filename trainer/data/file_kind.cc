#include "trainer/data/file_kind.h"

#include <cstddef>
#include <cstring>

namespace imgd::data {
namespace {

constexpr uint8_t kPngStart[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

uint32_t Big16(const uint8_t* p) { return uint32_t{p[0]} << 8 | p[1]; }
uint32_t Big32(const uint8_t* p) { return Big16(p) << 16 | Big16(p + 2); }

bool IsFrame(uint8_t marker) {  // SOF0 to SOF15 without DHT, JPG and DAC
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

// From the back, where it nearly always is.
bool HasEnd(std::span<const uint8_t> scans) {
  for (size_t i = scans.size(); i >= 2; --i) {
    if (scans[i - 2] == 0xFF && scans[i - 1] == 0xD9) return true;
  }
  return false;
}

void LookAtJpegMarkers(std::span<const uint8_t> file, FileKind& facts) {
  size_t at = 2;
  while (at + 4 <= file.size()) {
    if (file[at] != 0xFF) {
      ++at;  // libjpeg passes over bytes between segments too
      continue;
    }
    const uint8_t marker = file[at + 1];
    if (marker == 0xFF || marker == 0x00 || marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) {
      at += marker == 0xFF ? 1 : 2;  // fill bytes, and markers without a length
      continue;
    }
    if (marker == 0xD9) return;
    const size_t length = Big16(file.data() + at + 2);
    if (IsFrame(marker) && length >= 8 && at + 10 <= file.size() && facts.components == 0) {
      facts.height = Big16(file.data() + at + 5);
      facts.width = Big16(file.data() + at + 7);
      facts.components = file[at + 9];
    }
    at += 2 + length;
    if (marker != 0xDA) continue;
    facts.has_end = at <= file.size() && HasEnd(file.subspan(at));
    return;
  }
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
      facts.width = Big32(file.data() + 16);
      facts.height = Big32(file.data() + 20);
    }
  }
  return facts;
}

}  // namespace imgd::data
