#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace imgd::data {

/// The numbers behind their first byte 0xFF. Format: ITU-T T.81, table B.1.
namespace jpeg_marker {
constexpr uint8_t kTemporary = 0x01;
constexpr uint8_t kRestart0 = 0xD0;
constexpr uint8_t kRestart7 = 0xD7;
constexpr uint8_t kStartOfImage = 0xD8;
constexpr uint8_t kEndOfImage = 0xD9;
constexpr uint8_t kStartOfScan = 0xDA;
constexpr uint8_t kQuantisation = 0xDB;
constexpr uint8_t kRestartInterval = 0xDD;
constexpr uint8_t kApp0 = 0xE0;
constexpr uint8_t kApp14 = 0xEE;
}  // namespace jpeg_marker

/// Whether a frame begins: SOF0 to SOF15, of whose numbers three are other markers (DHT, JPG, DAC).
bool IsStartOfFrame(uint8_t marker);

/// A marker with a length, and what stands behind that.
struct JpegSegment {
  uint8_t marker = 0;
  std::span<const uint8_t> content;
};

/// Goes through the segments of a JPEG file from its start to its first scan, as libjpeg does: fill bytes,
/// bytes between segments that belong to none and markers that stand alone are passed over, and a length of
/// 0 or 1 is one of 2. Never looks behind the file's end.
class JpegSegments {
 public:
  /// `file` must begin with a start-of-image marker, which is not looked at.
  explicit JpegSegments(std::span<const uint8_t> file) : file_(file) {}

  /// The next one. None behind the first scan's header, at an end of the image, and where a length leads
  /// out of the file.
  std::optional<JpegSegment> Next();

  /// The coded data behind the first scan's header, up to the file's end; empty while that was not reached.
  std::span<const uint8_t> scan() const { return in_scan_ ? file_.subspan(at_) : file_.first(0); }

 private:
  std::span<const uint8_t> file_;
  size_t at_ = 2;
  bool in_scan_ = false;
};

/// The data behind the header of a file's first scan, up to the file's end; empty when there are none.
std::span<const uint8_t> FirstScan(std::span<const uint8_t> file);

/// The next marker at or behind `from`, in Huffman-coded data: its 0xFF, that something other than 0 follows.
/// `end` when there is none.
const uint8_t* FindMarker(const uint8_t* from, const uint8_t* end);

/// Whether an end-of-image marker stands anywhere in `data`. Looks from the back, where it nearly always is.
bool HasEndOfImage(std::span<const uint8_t> data);

/// A number of two or four bytes, the highest first, as JPEG and PNG files have them.
inline uint32_t Big16(std::span<const uint8_t> bytes, size_t at) {
  return uint32_t{bytes[at]} << 8 | bytes[at + 1];
}
inline uint32_t Big32(std::span<const uint8_t> bytes, size_t at) {
  return Big16(bytes, at) << 16 | Big16(bytes, at + 2);
}

}  // namespace imgd::data
