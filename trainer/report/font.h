#pragma once

#include <array>
#include <cstdint>

namespace imgd::report {

/// Seven rows of five pixels, the leftmost in bit 4.
using Glyph = std::array<uint8_t, 7>;

/// Of a digit, a letter (small ones look like capitals) or one of " -_.,:()%/+?"; else a full block.
const Glyph& GlyphOf(char c);

}  // namespace imgd::report
