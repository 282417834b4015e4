#include "trainer/data/jpeg_markers.h"

#include <algorithm>
#include <cstring>

namespace imgd::data {
namespace {

bool StandsAlone(uint8_t marker) {
  using namespace jpeg_marker;
  return marker == kTemporary || (marker >= kRestart0 && marker <= kStartOfImage);
}

}  // namespace

bool IsStartOfFrame(uint8_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

std::optional<JpegSegment> JpegSegments::Next() {
  if (in_scan_) return std::nullopt;
  while (at_ + 4 <= file_.size()) {
    const uint8_t marker = file_[at_ + 1];
    if (file_[at_] != 0xFF || marker == 0xFF) {
      ++at_;
      continue;
    }
    if (marker == 0 || StandsAlone(marker)) {
      at_ += 2;
      continue;
    }
    // A length that leaves out its own two bytes is, to libjpeg, a segment with nothing in it.
    const size_t length = std::max<size_t>(Big16(file_, at_ + 2), 2);
    if (marker == jpeg_marker::kEndOfImage || length > file_.size() - at_ - 2) break;
    const JpegSegment segment{marker, file_.subspan(at_ + 4, length - 2)};
    at_ += 2 + length;
    in_scan_ = marker == jpeg_marker::kStartOfScan;
    return segment;
  }
  at_ = file_.size();
  return std::nullopt;
}

std::span<const uint8_t> FirstScan(std::span<const uint8_t> file) {
  JpegSegments segments(file);
  while (segments.Next()) continue;
  return segments.scan();
}

const uint8_t* FindMarker(const uint8_t* from, const uint8_t* end) {
  while (from < end) {
    const auto* found = static_cast<const uint8_t*>(std::memchr(from, 0xFF, static_cast<size_t>(end - from)));
    if (found == nullptr || end - found < 2) break;
    if (found[1] != 0) return found;
    from = found + 2;
  }
  return end;
}

bool HasEndOfImage(std::span<const uint8_t> data) {
  for (size_t i = data.size(); i >= 2; --i) {
    if (data[i - 2] == 0xFF && data[i - 1] == jpeg_marker::kEndOfImage) return true;
  }
  return false;
}

}  // namespace imgd::data
