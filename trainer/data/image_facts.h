#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace imgd::data {

/// What an image file says about itself before its pixels.
struct ImageFacts {
  enum class Format { kUnknown, kJpeg, kPng };
  enum class Colours { kUnknown, kGrey, kYcc, kRgb, kCmyk, kYcck };

  Format format = Format::kUnknown;
  uint32_t width = 0;  ///< pixels; 0: its header can't be read
  uint32_t height = 0;
  // Of JPEG files.
  Colours colours = Colours::kUnknown;
  bool progressive = false;
  bool arithmetic = false;        ///< coded arithmetically, not by Huffman's codes
  uint32_t restart_interval = 0;  ///< in MCUs; 0: none
  std::string subsampling;  ///< of colour against brightness: "4:4:4", "4:2:2", "4:2:0"; else the factors
  /// libjpeg's quality, 1 to 100, whose table for brightness is the nearest to the file's.
  std::optional<int> quality;
};

/// Reads the headers of a JPEG or PNG file; decodes nothing. What can't be read stays as it is in
/// ImageFacts{}. Formats: ITU-T T.81, annexes B and K.1; W3C PNG, section 11.2.2.
ImageFacts LookAtImage(std::span<const uint8_t> file);

/// "JPEG", "PNG", "unknown"; "grey", "YCbCr", "RGB", "CMYK", "YCCK", "unknown".
const char* NameOf(ImageFacts::Format format);
const char* NameOf(ImageFacts::Colours colours);

}  // namespace imgd::data
