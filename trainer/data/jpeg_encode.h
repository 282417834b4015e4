#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/error.h"

namespace imgd::data {

struct JpegEncodeOptions {
  int quality = 90;    ///< 1 to 100
  int components = 3;  ///< bytes a pixel: 1 grey, 3 RGB, 4 CMYK (as Adobe's programs write it: inverted)
  bool progressive = false;
  int chroma_sampling = 2;  ///< 2: 4:2:0; 1: 4:4:4. Of colour images
};

/// Codes width * height * components bytes as a JPEG file; the same bytes for the same input.
/// Errors: kInvalidArgument in libjpeg's own words.
Result<std::string> EncodeJpeg(std::span<const uint8_t> pixels, int width, int height,
                               const JpegEncodeOptions& options);

}  // namespace imgd::data
