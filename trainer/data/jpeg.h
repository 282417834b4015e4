#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/error.h"
#include "trainer/data/image_decoder.h"

namespace imgd::data {

/// What libjpeg says of a file that it decodes all the same: its own words, or nothing.
struct JpegDoubts {
  std::string damage;   ///< broken data, so that the picture is not what was coded
  std::string warning;  ///< anything else: bytes too many, a header that is not as it should be
};

/// Decodes the part of a JPEG file that a crop needs. Huffman-coded files of one scan, which are nearly all,
/// are read by a decoder of our own (huffman_scan.h) up to the coefficients; the pixels are libjpeg's.
/// Colour, grey, CMYK and YCCK files, baseline and progressive, all come out as RGB. An EXIF orientation is
/// ignored, as torchvision's ImageFolder does. Never prints or exits, whatever is in the file.
class JpegDecoder final : public ImageDecoder {
 public:
  /// Bounds what one file can make us allocate.
  static constexpr uint64_t kMaxBytes = uint64_t{512} << 20;

  JpegDecoder();
  ~JpegDecoder() override;
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  Result<JpegSize> Open(std::span<const uint8_t> file, RestartIndex restarts = {}) override;

  /// Errors: kDataLoss in libjpeg's own words.
  Result<DecodedPart> Decode(const Box& box, double margin, int min_width, int min_height,
                             DecodeMode mode = DecodeMode::kFast) override;

  /// Whether the file that is open has R, G and B as they are, where nearly all others have YCbCr.
  bool stores_rgb() const;

  /// Decodes the whole of a file by libjpeg alone, up to its end marker. Errors: those of Open and Decode.
  Result<JpegDoubts> Examine(std::span<const uint8_t> file);

  /// For comparisons: leave all to libjpeg, from the next Open() on.
  void UseLibjpegAlone();
  /// Of those decoded, how many our own Huffman decoder did not take, or gave up.
  uint64_t files_left_to_libjpeg() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace imgd::data
