#pragma once

#include <cstdint>
#include <span>

namespace imgd::data {

/// What the first bytes of an image's file say of it, whatever its name is.
struct FileKind {
  enum class Kind { kOther, kJpeg, kPng };
  Kind kind = Kind::kOther;
  uint32_t width = 0;       ///< pixels; 0 where no header was found
  uint32_t height = 0;      ///< likewise
  uint32_t components = 0;  ///< of a JPEG: 1 grey, 3 colour, 4 CMYK or YCCK; 0 where no header was found
  bool has_end = false;     ///< of a JPEG: an end-of-image marker comes after the first scan's start
};

/// Looks at the markers of a JPEG up to its first scan, or at a PNG's header. Never fails: what is not found
/// stays 0. Formats: ITU-T T.81, annex B; PNG (RFC 2083).
FileKind LookAtFile(std::span<const uint8_t> file);

}  // namespace imgd::data
