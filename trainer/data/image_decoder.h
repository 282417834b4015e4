#pragma once

#include <cstdint>
#include <functional>
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

/// Rows and columns of an image; `right` and `bottom` are one past the last.
struct PixelRegion {
  int left = 0;
  int top = 0;
  int right = 0;
  int bottom = 0;
};

/// What must be decoded of an image of width x height pixels for `box` and `margin` pixels around it, in
/// pixels of the image after it was scaled by `scale`.
PixelRegion RegionOf(const Box& box, double margin, double scale, int width, int height);

/// Decodes the part of a JPEG file that a crop needs; JpegDecoder (jpeg.h) is the usual one. Keeps its memory
/// between files; one thread at a time.
class ImageDecoder {
 public:
  virtual ~ImageDecoder() = default;

  /// Reads the header. `file` must stay until Decode() has returned, and so must `restarts`, which saves
  /// reading the intervals that are not needed; one that is not of this file is not used.
  /// Errors: kDataLoss when it is no JPEG file, is cut short or needs too much memory, saying so.
  virtual Result<JpegSize> Open(std::span<const uint8_t> file, RestartIndex restarts) = 0;

  /// Decodes `box` (in pixels of the file) and `margin` pixels around it where the image has them; when fast,
  /// it may shrink the image, so that the box has at least min_width x min_height pixels unless the file
  /// itself has fewer. Once after each Open().
  /// Errors: kDataLoss for what is wrong with the file; kUnavailable when the decoder itself is broken, so
  /// that no other file can be decoded either.
  virtual Result<DecodedPart> Decode(const Box& box, double margin, int min_width, int min_height,
                                     DecodeMode mode) = 0;

  /// Of those decoded, how many a decoder on another device left to the CPU.
  virtual uint64_t images_left_to_cpu() const { return 0; }
};

/// Makes a decoder for the thread that calls it.
using DecoderFactory = std::function<Result<std::unique_ptr<ImageDecoder>>()>;

}  // namespace imgd::data
