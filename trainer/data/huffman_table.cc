#include "trainer/data/huffman_table.h"

#include <algorithm>
#include <cstddef>

namespace imgd::data {
namespace {

constexpr std::array<uint8_t, 192> MakeZigzag() {
  std::array<uint8_t, 192> order{};
  order.fill(63);
  int x = 0;
  int y = 0;
  for (size_t k = 0; k < 64; ++k) {
    order[k] = static_cast<uint8_t>(y * 8 + x);
    if ((x + y) % 2 == 0) {  // upwards to the right
      if (x == 7) {
        ++y;
      } else {
        ++x;
        if (y > 0) --y;
      }
    } else if (y == 7) {
      ++x;
    } else {
      ++y;
      if (x > 0) --x;
    }
  }
  return order;
}

constexpr unsigned kEndOfBlock = 0;
constexpr unsigned kRunOf16 = 15;  // as a run without a coefficient
// Runs in one entry of a table; bounds how far behind a block it may point.
constexpr unsigned kMostInEntry = 32;

}  // namespace

constinit const std::array<uint8_t, 192> kZigzag = MakeZigzag();

bool HuffmanTable::Set(const uint8_t* counts, const uint8_t* symbols) {
  if (std::equal(counts_.begin() + 1, counts_.end(), counts + 1) &&
      std::equal(symbols_.begin(), symbols_.end(), symbols))
    return true;
  counts_ = {};  // until it is known to be good, no later one is the same
  short_.fill({});
  int32_t code = 0;
  int32_t place = 0;
  for (int length = 1; length <= 16; ++length) {
    const auto l = static_cast<size_t>(length);
    const int32_t count = counts[l];
    offset_[l] = place - code;
    last_code_[l] = count > 0 ? code + count - 1 : -1;
    if (place + count > 256 || code + count > 1 << length) return false;
    for (int32_t i = 0; i < count && l <= kShortBits; ++i) {
      const size_t repeats = size_t{1} << (kShortBits - l);
      std::fill_n(short_.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(code + i) * repeats), repeats,
                  Code{static_cast<uint8_t>(l), symbols[place + i]});
    }
    place += count;
    code = (code + count) << 1;
  }
  for (size_t i = 0; i < differences_.size(); ++i) {
    const Code found = short_[i << (kShortBits - kDcBits)];
    differences_[i] = found.length <= kDcBits && found.symbol <= 15 ? found : Code{};
  }
  pairs_.fill({});
  leaps_.fill({});
  std::copy_n(counts + 1, 16, counts_.begin() + 1);
  std::copy_n(symbols, symbols_.size(), symbols_.begin());
  return true;
}

HuffmanTable::Code HuffmanTable::Find(uint32_t next16) const {
  const Code code = short_[next16 >> (16 - kShortBits)];
  if (code.length != 0) return code;
  for (unsigned length = kShortBits + 1; length <= 16; ++length) {
    const auto value = static_cast<int32_t>(next16 >> (16 - length));
    if (value <= last_code_[length]) {
      const auto place = static_cast<size_t>(value + offset_[length]) & 255;
      return {static_cast<uint8_t>(length), symbols_[place]};
    }
  }
  return {};
}

bool HuffmanTable::Make(uint64_t bits, Pair& pair) const {
  if (pair.advance == kOnlyCode) return false;
  // Only the bits that the entry is found by may decide what is in it.
  const uint32_t known = static_cast<uint32_t>(bits >> (64 - kPairBits)) << (32 - kPairBits);
  Pair made{};
  unsigned used = 0;
  unsigned place = 0;
  for (size_t n = 0; place <= kMostInEntry;) {
    const Code code = Find(known << used >> 16);
    const unsigned run = code.symbol >> 4;
    const unsigned size = code.symbol & 15;
    if (code.length == 0 || used + code.length + size > kPairBits || (size > 0 && n == 2)) break;
    used += code.length;
    if (size == 0 && run == kRunOf16) {
      place += 16;
    } else if (size == kEndOfBlock) {
      place += kBlockEnds;
    } else {
      const auto value = static_cast<int16_t>(ExtendSign(known << used >> (32 - size), size));
      used += size;
      made.value[n] = value;
      made.at[n] = static_cast<uint8_t>(place + run);
      if (n == 0) {
        made.value[1] = made.value[0];
        made.at[1] = made.at[0];
      }
      place += run + 1;
      ++n;
    }
    made.bits = static_cast<uint8_t>(used);
    made.advance = static_cast<uint8_t>(place);
  }
  if (made.bits == 0) {
    const Code code = Find(known >> 16);
    made.advance = kOnlyCode;
    if (code.length <= kPairBits && (code.symbol & 15) > 0) made.at = {code.length, code.symbol};
  }
  pair = made;
  return made.bits != 0;
}

bool HuffmanTable::Make(uint64_t bits, Leap& leap) const {
  if (leap.advance == kOnlyCode) return false;
  const uint32_t known = static_cast<uint32_t>(bits >> (64 - kSkipBits)) << (32 - kSkipBits);
  Leap made{};
  unsigned used = 0;
  unsigned place = 0;
  while (place <= kMostInEntry && used < kSkipBits) {
    const Code code = Find(known << used >> 16);
    const unsigned run = code.symbol >> 4;
    const unsigned size = code.symbol & 15;
    if (code.length == 0 || used + code.length > kSkipBits || used + code.length + size > kMostLeapBits)
      break;
    used += code.length + size;
    place += size > 0 ? run + 1 : run == kRunOf16 ? 16 : kBlockEnds;
    made.bits = static_cast<uint8_t>(used);
    made.advance = static_cast<uint8_t>(place);
  }
  if (made.bits == 0) made.advance = kOnlyCode;
  leap = made;
  return made.bits != 0;
}

HuffmanTable::Decoded HuffmanTable::DecodeDifference(uint64_t bits, const uint8_t* next,
                                                     unsigned left) const {
  BitWindow window{bits, next, left};
  window.Refill();
  const Code code = Find(window.Peek(16));
  if (code.length == 0 || code.symbol > 15) return {window, 0, kIrregular};
  window.Drop(code.length);
  const int value = TakeValue(window, code.symbol);
  return {window, value, 0};
}

HuffmanTable::Decoded HuffmanTable::DecodeOne(BitWindow window, unsigned k, int16_t* block) const {
  window.Refill();
  const Code code = Find(window.Peek(16));
  if (code.length == 0) return {window, 0, kIrregular};
  window.Drop(code.length);
  const unsigned run = code.symbol >> 4;
  const unsigned size = code.symbol & 15;
  if (size == 0) {
    if (run != kRunOf16) return {window, 0, kBlockEnds};
    return {window, 0, k + 16 <= 64 ? k + 16 : kIrregular};
  }
  k += run;
  if (k > 63) return {window, 0, kIrregular};
  const int value = TakeValue(window, size);
  if (block != nullptr) block[kZigzag[k]] = static_cast<int16_t>(value);
  return {window, value, k + 1};
}

}  // namespace imgd::data
