#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/image.h"

namespace imgd::data {

/// Pixels of our own: [height, width, 4], R, G, B and one that nobody reads.
struct Pixels {
  std::vector<uint8_t> bytes;
  int width = 0;
  int height = 0;
  ImageView view() const { return {bytes.data(), width, height}; }
};

/// Decodes a PNG file of any kind as 8-bit RGB with the colours that PIL's convert("RGB") gives it:
/// transparency is dropped, gAMA and colour profiles are ignored, of 16 bits the upper 8 are taken (also of
/// grey, where PIL cuts off what is above 255 instead). Errors: kDataLoss in libpng's own words, or for an
/// image of more than JpegDecoder::kMaxBytes.
Result<Pixels> DecodePng(std::span<const uint8_t> file);

/// A PNG file of [height, width, 3] bytes, RGB. Errors: kInvalidArgument in libpng's own words.
Result<std::string> EncodePng(std::span<const uint8_t> rgb, int width, int height);

}  // namespace imgd::data
