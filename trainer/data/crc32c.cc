#include "trainer/data/crc32c.h"

#include <array>
#include <cstring>

namespace imgd::data {
namespace {

// Eight tables: table k advances a byte's remainder by k more bytes of zeros.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    tables[0][i] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t i = 0; i < 256; ++i) {
      tables[k][i] = tables[k - 1][i] >> 8 ^ tables[0][tables[k - 1][i] & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

#if defined(__x86_64__)
// The processor's own instruction, a word at a time: about six times as fast as the tables.
__attribute__((target("sse4.2"))) uint32_t ByInstruction(std::span<const uint8_t> bytes, uint32_t crc) {
  uint64_t wide = ~crc;
  const uint8_t* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t word = 0;
    std::memcpy(&word, p, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  auto narrow = static_cast<uint32_t>(wide);
  for (; left > 0; --left, ++p) narrow = __builtin_ia32_crc32qi(narrow, *p);
  return ~narrow;
}
#endif

}  // namespace

uint32_t Crc32c(std::span<const uint8_t> bytes, uint32_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ByInstruction(bytes, crc);
#endif
  crc = ~crc;
  const uint8_t* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t word = 0;
    std::memcpy(&word, p, 8);  // little-endian, as all our formats
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][word >> (8 * k) & 0xFF];
  }
  for (; left > 0; --left, ++p) crc = crc >> 8 ^ kTables[0][(crc ^ *p) & 0xFF];
  return ~crc;
}

}  // namespace imgd::data
