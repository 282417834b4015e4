#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"

namespace imgd::data {

/// Where the restart intervals of a JPEG file begin, packed: for each but the last the bytes from its first
/// to the marker behind it, that included, as a varint. Empty: not known.
using RestartIndex = std::span<const uint8_t>;

/// The number at the front of `bytes`, seven bits a byte, the lowest first, the last byte below 128; takes it
/// off. Nothing where there is none below 2^32.
inline std::optional<uint32_t> TakeVarint(std::span<const uint8_t>& bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size() && i < 5; ++i) {
    value |= static_cast<uint64_t>(bytes[i] & 127) << (7 * i);
    if (bytes[i] >= 128) continue;
    bytes = bytes.subspan(i + 1);
    if (value > UINT32_MAX) return std::nullopt;
    return static_cast<uint32_t>(value);
  }
  return std::nullopt;
}

}  // namespace imgd::data
