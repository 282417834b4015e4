#include "trainer/data/huffman_table.h"

#include <algorithm>
#include <cstddef>

namespace imgd::data {
namespace {

constexpr std::array<uint8_t, 256> MakeZigzag() {
  std::array<uint8_t, 256> order{};
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

constexpr unsigned kRunOf16 = 15;  // as a run without a coefficient
// Places in one leap, before the last code; bounds `advance`.
constexpr unsigned kMostInLeap = 32;
constexpr uint8_t kNoLeap = 1;  // as `advance` of an entry without bits

// How far a code without a value goes. Runs of less than 16 end the block, as libjpeg has it.
uint8_t AdvanceWithoutValue(unsigned run) { return run == kRunOf16 ? 16 : kBlockEnds; }

}  // namespace

constinit const std::array<uint8_t, 256> kZigzag = MakeZigzag();

bool HuffmanCode::IsThat(const uint8_t* counts, const uint8_t* symbols) const {
  return std::equal(counts_.begin() + 1, counts_.end(), counts + 1) &&
         std::equal(symbols_.begin(), symbols_.end(), symbols);
}

bool HuffmanCode::Set(const uint8_t* counts, const uint8_t* symbols) {
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
      std::fill_n(short_.data() + static_cast<size_t>(code + i) * repeats, repeats,
                  Symbol{static_cast<uint8_t>(l), symbols[place + i]});
    }
    place += count;
    code = (code + count) << 1;
  }
  std::copy_n(counts + 1, 16, counts_.begin() + 1);
  std::copy_n(symbols, symbols_.size(), symbols_.begin());
  return true;
}

HuffmanCode::Symbol HuffmanCode::Find(uint32_t next16) const {
  const Symbol found = short_[next16 >> (16 - kShortBits)];
  if (found.length != 0) return found;
  for (unsigned length = kShortBits + 1; length <= 16; ++length) {
    const auto value = static_cast<int32_t>(next16 >> (16 - length));
    if (value <= last_code_[length]) {
      const auto place = static_cast<size_t>(value + offset_[length]) & 255;
      return {static_cast<uint8_t>(length), symbols_[place]};
    }
  }
  return {};
}

bool DcTable::Set(const uint8_t* counts, const uint8_t* symbols) {
  if (code_.IsThat(counts, symbols)) return true;
  if (!code_.Set(counts, symbols)) return false;
  for (size_t i = 0; i < short_.size(); ++i) {
    const auto found = code_.FindShort(i << (HuffmanCode::kShortBits - kBits));
    const bool fits = found.length <= kBits && found.symbol <= 15;
    short_[i] = fits ? found : HuffmanCode::Symbol{};
  }
  return true;
}

DcTable::Decoded DcTable::Decode(uint64_t bits, const uint8_t* next, unsigned left) const {
  BitWindow window{bits, next, left};
  window.Refill();
  const auto found = code_.Find(window.Peek(16));
  if (found.length == 0 || found.symbol > 15) return {window, 0, false};
  window.Drop(found.length);
  const int value = TakeValue(window, found.symbol);
  return {window, value, true};
}

bool AcTable::Set(const uint8_t* counts, const uint8_t* symbols) {
  if (code_.IsThat(counts, symbols)) return true;
  if (!code_.Set(counts, symbols)) return false;
  Singles singles;
  MakeSingles(singles);
  MakePairs(singles);
  leaps_.fill({});
  return true;
}

void AcTable::MakeSingles(Singles& singles) const {
  constexpr unsigned kShift = HuffmanCode::kShortBits - kPairBits;
  for (size_t i = 0; i < singles.size();) {
    const auto [length, symbol] = code_.FindShort(i << kShift);
    const unsigned run = symbol >> 4;
    const unsigned size = symbol & 15;
    if (length == 0 || length > kPairBits) {
      singles[i++] = {};
      continue;
    }
    const unsigned room = kPairBits - length;
    Single* const first = &singles[i];
    i += size_t{1} << room;
    if (size > room) {
      std::fill_n(first, size_t{1} << room, Single{});
    } else if (size == 0) {
      std::fill_n(first, size_t{1} << room, Single{0, AdvanceWithoutValue(run), length});
    } else {
      const size_t repeats = size_t{1} << (room - size);
      for (unsigned value = 0; value < 1U << size; ++value) {
        std::fill_n(first + value * repeats, repeats,
                    Single{static_cast<int16_t>(ExtendSign(value, size)), static_cast<uint8_t>(run + 1),
                           static_cast<uint8_t>(length + size)});
      }
    }
  }
}

// A zero of a code without a value is stored where a zero is: in a run, or (behind the end of a block) at 63,
// where nothing has been if the block ends before.
void AcTable::MakePairs(const Singles& singles) {
  constexpr size_t kMask = (size_t{1} << kPairBits) - 1;
  const Single none{};
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const Single a = singles[i];
    const auto place = static_cast<uint8_t>(a.advance - 1);
    Pair pair{{a.value, a.value}, {place, place}, a.advance, a.bits};
    // A code that does not fit into what is left of the bits is that of other bits.
    const Single& second = singles[i << a.bits & kMask];
    const bool fits = a.value != 0 && a.bits + second.bits <= kPairBits;
    const Single b = fits ? second : none;
    if (b.bits > 0) {
      pair.value[1] = b.value;
      pair.at[1] = static_cast<uint8_t>(a.advance + b.advance - 1);
      pair.advance = static_cast<uint8_t>(a.advance + b.advance);
      pair.bits = static_cast<uint8_t>(a.bits + b.bits);
      const Single& end = singles[i << pair.bits & kMask];
      if (b.advance < kBlockEnds && end.advance == kBlockEnds && pair.bits + end.bits <= kPairBits) {
        pair.advance = static_cast<uint8_t>(pair.advance + kBlockEnds);
        pair.bits = static_cast<uint8_t>(pair.bits + end.bits);
      }
    }
    if (a.bits == 0) {
      const auto [length, symbol] = code_.FindShort(i << (HuffmanCode::kShortBits - kPairBits));
      const bool whole = length > 0 && length <= kPairBits;
      pair = {{0, 0}, {whole ? length : uint8_t{0}, whole ? symbol : uint8_t{0}}, 0, 0};
    }
    pairs_[i] = pair;
  }
}

bool AcTable::Make(uint64_t bits, Leap& leap) const {
  if (leap.advance == kNoLeap) return false;
  // Only the bits that the entry is found by may decide what is in it.
  const uint32_t known = static_cast<uint32_t>(bits >> (64 - kLeapBits)) << (32 - kLeapBits);
  Leap made{kNoLeap, 0};
  unsigned used = 0;
  unsigned place = 0;
  while (place <= kMostInLeap && used < kLeapBits) {
    const auto [length, symbol] = code_.Find(known << used >> 16);
    const unsigned run = symbol >> 4;
    const unsigned size = symbol & 15;
    if (length == 0 || used + length > kLeapBits || used + length + size > kMostLeapBits) break;
    used += length + size;
    place += size > 0 ? run + 1 : AdvanceWithoutValue(run);
    made = {static_cast<uint8_t>(place), static_cast<uint8_t>(used)};
  }
  leap = made;
  return made.bits != 0;
}

AcTable::Decoded AcTable::DecodeOne(BitWindow window, unsigned k, int16_t* block) const {
  window.Refill();
  const auto [length, symbol] = code_.Find(window.Peek(16));
  if (length == 0) return {window, kIrregularPlace};
  window.Drop(length);
  const unsigned run = symbol >> 4;
  const unsigned size = symbol & 15;
  if (size == 0) {
    if (run != kRunOf16) return {window, kBlockEnds};
    return {window, k + 16 <= 64 ? k + 16 : kIrregularPlace};
  }
  k += run;
  if (k > 63) return {window, kIrregularPlace};
  const int value = TakeValue(window, size);
  if (block != nullptr) block[kZigzag[k]] = static_cast<int16_t>(value);
  return {window, k + 1};
}

}  // namespace imgd::data
