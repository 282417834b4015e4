#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "common/error.h"
#include "trainer/data/decode_mode.h"
#include "trainer/data/image.h"
#include "trainer/data/restart_index.h"

namespace imgd::data {

struct JpegSize {
  int width = 0;
  int height = 0;
};

/// A part of an image, decoded. The pixels belong to the decoder and last until its next call.
struct DecodedPart {
  ImageView pixels;
  Box box;  ///< the asked-for box, in the coordinates of `pixels`
};

/// Decodes the part of a JPEG file that a crop needs. Huffman-coded files of one scan, which are nearly all,
/// are read by a decoder of our own (huffman_scan.h) up to the coefficients; the pixels are libjpeg's.
/// Colour, grey, CMYK and YCCK files, baseline and progressive, all come out as RGB. An EXIF orientation is
/// ignored, as torchvision's ImageFolder does. Never prints or exits, whatever is in the file. Keeps its
/// memory between files; one thread at a time.
class JpegDecoder {
 public:
  /// Bounds what one file can make us allocate.
  static constexpr uint64_t kMaxBytes = uint64_t{512} << 20;

  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// Reads the header. `file` must stay until Decode() has returned, and so must `restarts`, which saves
  /// reading the intervals that are not needed; one that is not of this file is not used.
  /// Errors: kDataLoss when it is no JPEG file, is cut short or needs too much memory, saying so.
  Result<JpegSize> Open(std::span<const uint8_t> file, RestartIndex restarts = {});

  /// Decodes `box` (in pixels of the file) and `margin` pixels around it where the image has them; when fast,
  /// so that the box has at least min_width x min_height pixels unless the file itself has fewer.
  /// Once after each Open(). Errors: kDataLoss in libjpeg's own words.
  Result<DecodedPart> Decode(const Box& box, double margin, int min_width, int min_height,
                             DecodeMode mode = DecodeMode::kFast);

  /// For comparisons: leave all to libjpeg, from the next Open() on.
  void UseLibjpegAlone();
  /// Of those decoded, how many our own Huffman decoder did not take, or gave up.
  uint64_t files_left_to_libjpeg() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace imgd::data
