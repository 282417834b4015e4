#include "trainer/data/jpeg_markers.h"

#include <cstddef>
#include <cstring>

namespace imgd::data {

const uint8_t* FindMarker(const uint8_t* from, const uint8_t* end) {
  while (from < end) {
    const auto* found = static_cast<const uint8_t*>(std::memchr(from, 0xFF, static_cast<size_t>(end - from)));
    if (found == nullptr || end - found < 2) break;
    if (found[1] != 0) return found;
    from = found + 2;
  }
  return end;
}

std::span<const uint8_t> FirstScan(std::span<const uint8_t> file) {
  constexpr uint8_t kStartOfScan = 0xDA;
  size_t at = 2;  // behind the start of the image
  while (at + 4 <= file.size() && file[at] == 0xFF) {
    const uint8_t marker = file[at + 1];
    if (marker == 0xFF) {  // a byte to fill up
      ++at;
      continue;
    }
    at += 2 + static_cast<size_t>(file[at + 2] << 8 | file[at + 3]);
    if (at > file.size()) break;
    if (marker == kStartOfScan) return file.subspan(at);
  }
  return {};
}

}  // namespace imgd::data
