#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

namespace imgd::data {

/// The next bits of a stream, the first of them topmost. Reads ahead up to 8 bytes behind what is used.
struct BitWindow {
  uint64_t bits = 0;
  const uint8_t* next = nullptr;  ///< first byte that is not wholly in `bits`
  unsigned left = 0;              ///< how many of `bits` are valid

  /// At least 56 bits are valid afterwards.
  void Refill() {
    static_assert(std::endian::native == std::endian::little);
    uint64_t word;
    std::memcpy(&word, next, sizeof word);
    bits |= __builtin_bswap64(word) >> left;
    next += (63 - left) >> 3;
    left |= 56;
  }
  void Drop(unsigned n) {
    bits <<= n;
    left -= n;
  }
  unsigned Peek(unsigned n) const { return static_cast<unsigned>(bits >> (64 - n)); }
};

/// A Huffman code of a JPEG file (ITU-T T.81, annexes C and F), with what makes decoding with it fast: tables
/// that are filled as their entries are met, which give whole coefficients for the next bits, up to two at
/// once. One thread at a time.
class HuffmanTable {
 public:
  static constexpr unsigned kDcBits = 9;
  static constexpr unsigned kPairBits = 11;
  static constexpr unsigned kSkipBits = 13;
  static constexpr unsigned kBlockEnds = 128;   ///< added to `advance` by the code that ends a block
  static constexpr unsigned kIrregular = 1000;  ///< a place in a block that says that the data are not good

  /// A code of a DC difference: so many bits, then `size` bits of value. length == 0: longer than kDcBits.
  struct Code {
    uint8_t length;
    uint8_t symbol;
  };
  /// One or two AC coefficients (the same one twice, or one that is zero, where there are fewer).
  struct Pair {
    std::array<int16_t, 2> value;
    std::array<uint8_t, 2> at;  ///< places after the present one, in zigzag order
    uint8_t advance;            ///< to the place after them
    uint8_t bits;               ///< 0: not made yet or, where IsCode(), only the code of one in `at`
    bool IsCode() const { return advance == kOnlyCode && at[0] > 0; }
    Code code() const { return {at[0], at[1]}; }
  };
  /// As many coefficients as fit, without their values; the bits of the last value may be more than the entry
  /// is found by, at most kMostLeapBits together.
  struct Leap {
    uint8_t advance;
    uint8_t bits;
  };
  static constexpr unsigned kMostLeapBits = 21;

  /// `counts`: how many codes there are of 0 (none), 1, ..., 16 bits; `symbols`: 256, of which the first are
  /// theirs. Costs little when they are the same as before. False when they make no code.
  bool Set(const uint8_t* counts, const uint8_t* symbols);

  Code difference(const BitWindow& window) const { return differences_[window.Peek(kDcBits)]; }
  Pair& pair(const BitWindow& window) { return pairs_[window.Peek(kPairBits)]; }
  Leap& leap(const BitWindow& window) { return leaps_[window.Peek(kSkipBits)]; }

  /// Fill the entry that the next bits show; false when it is too long for the table.
  bool Make(uint64_t bits, Pair& pair) const;
  bool Make(uint64_t bits, Leap& leap) const;

  /// What a code of any length stands for, and the stream behind it. By value, so that the stream stays in
  /// registers where codes are short.
  struct Decoded {
    BitWindow window;
    int value;   ///< of a DC difference
    unsigned k;  ///< of AC codes: the place behind it, kBlockEnds when it ends the block, or kIrregular
  };

  /// Decodes one DC difference.
  Decoded DecodeDifference(uint64_t bits, const uint8_t* next, unsigned left) const;

  /// Decodes one AC code at place `k` (1 to 63) of a block; stores its coefficient if there is a block.
  Decoded DecodeOne(BitWindow window, unsigned k, int16_t* block) const;

 private:
  static constexpr unsigned kShortBits = 11;
  static constexpr uint8_t kOnlyCode =
      1;  ///< as `advance` of an entry without bits: no more can be made of it
  Code Find(uint32_t next16) const;

  std::array<uint8_t, 17> counts_{};
  std::array<uint8_t, 256> symbols_{};
  std::array<Code, size_t{1} << kShortBits> short_{};  ///< by the next bits; length 0 for longer codes
  std::array<int32_t, 17> last_code_{};                ///< of each length; -1 for none
  std::array<int32_t, 17> offset_{};                   ///< from a code of that length to its symbol's place
  std::array<Code, size_t{1} << kDcBits> differences_{};
  std::array<Pair, size_t{1} << kPairBits> pairs_{};
  std::array<Leap, size_t{1} << kSkipBits> leaps_{};
};

/// From zigzag order to rows; places behind the block are 63, as libjpeg has it.
extern const std::array<uint8_t, 192> kZigzag;

/// The value that `size` bits stand for (T.81, figure F.12); size from 0 to 15, 0 for none.
inline int ExtendSign(unsigned bits, unsigned size) {
  const int value = static_cast<int>(bits);
  const int half = (1 << size) >> 1;
  return value - (value < half ? (1 << size) - 1 : 0);
}

/// The value in the next bits, of which there must be so many.
inline int TakeValue(BitWindow& window, unsigned size) {
  const int value = ExtendSign(static_cast<unsigned>(window.bits >> 1 >> (63 - size)), size);
  window.Drop(size);
  return value;
}

}  // namespace imgd::data
