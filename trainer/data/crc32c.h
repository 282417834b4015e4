#pragma once

#include <cstdint>
#include <span>

namespace imgd::data {

/// CRC-32C (Castagnoli, polynomial 0x1EDC6F41 reflected; RFC 3720, appendix B.4). `crc` is that of the bytes
/// before, to go on from. Crc32c("123456789") is 0xE3069283.
uint32_t Crc32c(std::span<const uint8_t> bytes, uint32_t crc = 0);

}  // namespace imgd::data
