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

/// A Huffman code of a JPEG file (ITU-T T.81, annexes C and F).
class HuffmanCode {
 public:
  struct Symbol {
    uint8_t length;  ///< of its code in bits; 0: there is none
    uint8_t symbol;
  };
  static constexpr unsigned kShortBits = 11;

  /// `counts`: how many codes there are of 0 (none), 1, ..., 16 bits; `symbols`: 256, of which the first are
  /// theirs. False when they make no code.
  bool Set(const uint8_t* counts, const uint8_t* symbols);
  bool IsThat(const uint8_t* counts, const uint8_t* symbols) const;

  /// By the next 16 bits.
  Symbol Find(uint32_t next16) const;
  /// By the next kShortBits bits; only codes of at most so many.
  Symbol FindShort(size_t next) const { return short_[next]; }

 private:
  std::array<uint8_t, 17> counts_{};
  std::array<uint8_t, 256> symbols_{};
  std::array<Symbol, size_t{1} << kShortBits> short_{};
  std::array<int32_t, 17> last_code_{};  ///< of each length; -1 for none
  std::array<int32_t, 17> offset_{};     ///< from a code of that length to its symbol's place
};

/// A place in a block: where it ended, and where the data are not good.
constexpr unsigned kBlockEnds = 128;
constexpr unsigned kIrregularPlace = 1000;

/// The code of DC differences.
class DcTable {
 public:
  static constexpr unsigned kBits = 9;

  /// Costs little when they are the same as before. False when they make no code.
  bool Set(const uint8_t* counts, const uint8_t* symbols);

  /// Its symbol is the size of the value behind it. Length 0: longer than kBits.
  HuffmanCode::Symbol operator[](const BitWindow& window) const { return short_[window.Peek(kBits)]; }

  struct Decoded {
    BitWindow window;  ///< behind it
    int value;
    bool good;
  };
  /// Of any length. By value, so that the window stays in registers elsewhere.
  Decoded Decode(uint64_t bits, const uint8_t* next, unsigned left) const;

 private:
  HuffmanCode code_;
  std::array<HuffmanCode::Symbol, size_t{1} << kBits> short_{};
};

/// The code of AC coefficients, with tables that give whole coefficients for the next bits, several at once.
/// Runs are counted in places of the zigzag order. One thread at a time.
class AcTable {
 public:
  static constexpr unsigned kPairBits = 11;
  static constexpr unsigned kLeapBits = 13;
  static constexpr unsigned kMostLeapBits = 21;

  /// Up to two coefficients; where there are fewer, zeros that go where zeros are.
  struct Pair {
    std::array<int16_t, 2> value;
    std::array<uint8_t, 2> at;  ///< places after the present one
    uint8_t advance;            ///< to the place after them, and kBlockEnds if the block ends there
    uint8_t bits;  ///< 0: only a code, whose value goes beyond the table, or that is longer itself
    HuffmanCode::Symbol code() const { return {at[0], at[1]}; }  ///< where bits == 0; length 0 if longer
  };
  /// As many coefficients as fit, without their values; the bits of the last value may be more than the entry
  /// is found by, at most kMostLeapBits together.
  struct Leap {
    uint8_t advance;
    uint8_t bits;  ///< 0: not made yet, or can't be
  };

  bool Set(const uint8_t* counts, const uint8_t* symbols);

  const Pair& pair(const BitWindow& window) const { return pairs_[window.Peek(kPairBits)]; }
  Leap& leap(const BitWindow& window) { return leaps_[window.Peek(kLeapBits)]; }
  /// Makes the entry that the next bits show, when it is met first; false when they are a longer code.
  bool Make(uint64_t bits, Leap& leap) const;

  struct Decoded {
    BitWindow window;  ///< behind it
    unsigned k;        ///< the place behind it, kBlockEnds when it ends the block, or kIrregularPlace
  };
  /// One code of any length at place `k` (1 to 63) of a block; stores its coefficient if there is a block.
  Decoded DecodeOne(BitWindow window, unsigned k, int16_t* block) const;

 private:
  // The first code and its value. advance: to the place behind it, or kBlockEnds; bits == 0: do not fit.
  struct Single {
    int16_t value;
    uint8_t advance;
    uint8_t bits;
  };
  using Singles = std::array<Single, size_t{1} << kPairBits>;
  void MakeSingles(Singles& singles) const;
  void MakePairs(const Singles& singles);
  static_assert(kPairBits <= HuffmanCode::kShortBits);

  HuffmanCode code_;
  std::array<Pair, size_t{1} << kPairBits> pairs_{};
  std::array<Leap, size_t{1} << kLeapBits> leaps_{};
};

/// From zigzag order to rows; places behind the block are 63, as libjpeg has it.
extern const std::array<uint8_t, 256> kZigzag;

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
