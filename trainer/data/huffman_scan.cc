#include "trainer/data/huffman_scan.h"

#include <algorithm>
#include <bit>
#include <limits>

// After jpeglib.h. What is used of it: the place of the function that decodes an MCU, and the first and last
// column that are transformed.
#include <jpegint.h>

#include "trainer/data/jpeg_markers.h"

namespace imgd::data {
namespace {

// More than an MCU can take: 10 blocks of 64 codes of 16 bits with 15 bits of value.
constexpr ptrdiff_t kMcuBytes = 2560;
constexpr size_t kBufferBytes = 8192;
constexpr size_t kSlack = 64;  // read or written behind the end, in words

constexpr uint64_t kOnes = 0x0101010101010101;

// Not 0 where a byte is 0xFF; exact up to the lowest such byte.
uint64_t FindFF(uint64_t word) { return (~word - kOnes) & word & (kOnes << 7); }

// Member by member, and windows are passed so: then the compiler keeps them in registers.
inline void Move(const BitWindow& from, BitWindow& to) {
  to.bits = from.bits;
  to.next = from.next;
  to.left = from.left;
}

// Codes that are too long for the table, or reach into the next block: one by one, to the end of the block or
// only the next.
[[gnu::noinline]] AcTable::Decoded DecodeSlowly(const AcTable& table, uint64_t bits, const uint8_t* next,
                                                unsigned left, unsigned k, int16_t* block, bool all) {
  AcTable::Decoded decoded{{bits, next, left}, k};
  do {
    decoded = table.DecodeOne(decoded.window, decoded.k, block);
  } while (all && decoded.k < 64);
  return decoded;
}

// Stores the coefficients.
struct Storing {
  static constexpr int kSteps = 4;
  static constexpr unsigned kPeek = AcTable::kPairBits;
  static constexpr unsigned kMost = AcTable::kPairBits;
  static const auto& Entry(AcTable& table, const BitWindow& window) { return table.pair(window); }
  static void Store(const AcTable::Pair& pair, int16_t* block, unsigned k) {
    block[kZigzag[k + pair.at[0]]] = pair.value[0];
    block[kZigzag[k + pair.at[1]]] = pair.value[1];
  }
  static void TakeAndStore(BitWindow& window, unsigned size, int16_t* block, unsigned k) {
    block[kZigzag[k]] = static_cast<int16_t>(TakeValue(window, size));
  }
  // What an entry without bits stands for, if it is more than that: then it is done, or made.
  static bool Resolve(AcTable&, const AcTable::Pair& pair, BitWindow& window, int16_t* block, unsigned& k) {
    return TakeCode<Storing>(pair, window, block, k);
  }

 protected:
  // A code whose value has more bits than the table shows.
  template <typename Way>
  static bool TakeCode(const AcTable::Pair& pair, BitWindow& window, int16_t* block, unsigned& k) {
    const auto [length, symbol] = pair.code();
    const unsigned at = k + (symbol >> 4);
    if (length == 0 || at > 63) return false;
    window.Refill();
    window.Drop(length);
    Way::TakeAndStore(window, symbol & 15, block, at);
    k = at + 1;
    return true;
  }
};

// The same without storing anything: for a few blocks by a code that is used for little else.
struct Passing : Storing {
  static void Store(const AcTable::Pair&, int16_t*, unsigned) {}
  static void TakeAndStore(BitWindow& window, unsigned size, int16_t*, unsigned) { window.Drop(size); }
  static bool Resolve(AcTable&, const AcTable::Pair& pair, BitWindow& window, int16_t* block, unsigned& k) {
    return TakeCode<Passing>(pair, window, block, k);
  }
};

// By longer leaps, which are worth making for many blocks.
struct Leaping {
  static constexpr int kSteps = 2;
  static constexpr unsigned kPeek = AcTable::kLeapBits;
  static constexpr unsigned kMost = AcTable::kMostLeapBits;
  static auto& Entry(AcTable& table, const BitWindow& window) { return table.leap(window); }
  static void Store(const AcTable::Leap&, int16_t*, unsigned) {}
  static bool Resolve(AcTable& table, AcTable::Leap& leap, BitWindow& window, int16_t*, unsigned&) {
    return table.Make(window.bits, leap);
  }
};

// The AC codes of a block. At least kPeek bits are there before, and DcTable::kBits after. A table's entry
// may hold the end of this block and the start of the next: then it is not used. False for irregular data.
template <typename Way>
[[gnu::always_inline]] inline bool DecodeAc(BitWindow& window, AcTable& table, int16_t* block) {
  static_assert(Way::kPeek + Way::kSteps * Way::kMost <= 56 && Way::kPeek >= DcTable::kBits);
  unsigned k = 1;
  for (;;) {
    auto* entry = &Way::Entry(table, window);  // loaded while more bits are
    window.Refill();
#pragma GCC unroll 4
    for (int step = 0; step < Way::kSteps; ++step) {
      if (step > 0) entry = &Way::Entry(table, window);
      if (entry->bits == 0) [[unlikely]] {
        if (Way::Resolve(table, *entry, window, block, k)) {
          if (k == 64) return true;
          break;
        }
        const auto decoded = DecodeSlowly(table, window.bits, window.next, window.left, k, block, false);
        Move(decoded.window, window);
        k = decoded.k;
        if (k >= 64) return k != kIrregularPlace;
        break;
      }
      const unsigned advance = entry->advance;
      const unsigned bits = entry->bits;
      Way::Store(*entry, block, k);
      k += advance;
      if (k >= 64) [[unlikely]] {
        if (k != 64 && k - kBlockEnds >= 64) [[unlikely]] {
          const auto decoded =
              DecodeSlowly(table, window.bits, window.next, window.left, k - advance, block, true);
          Move(decoded.window, window);
          return decoded.k != kIrregularPlace;
        }
        window.Drop(bits);
        return true;
      }
      window.Drop(bits);
    }
  }
}

}  // namespace

HuffmanScan::HuffmanScan() : buffer_(kBufferBytes + kMcuBytes + kSlack) {}

bool HuffmanScan::SetTables(j_decompress_ptr cinfo) {
  block_count_ = static_cast<size_t>(cinfo->blocks_in_MCU);
  for (size_t i = 0; i < block_count_; ++i) {
    const int component = cinfo->MCU_membership[i];
    const jpeg_component_info& info = *cinfo->cur_comp_info[component];
    const auto dc = static_cast<size_t>(info.dc_tbl_no);
    const auto ac = static_cast<size_t>(info.ac_tbl_no);
    if (dc >= NUM_HUFF_TBLS || ac >= NUM_HUFF_TBLS) return false;
    const JHUFF_TBL* dc_code = cinfo->dc_huff_tbl_ptrs[dc];
    const JHUFF_TBL* ac_code = cinfo->ac_huff_tbl_ptrs[ac];
    if (dc_code == nullptr || ac_code == nullptr) return false;
    if (!dc_tables_[dc].Set(dc_code->bits, dc_code->huffval)) return false;
    if (!ac_tables_[ac].Set(ac_code->bits, ac_code->huffval)) return false;
    blocks_[i] = {&dc_tables_[dc], &ac_tables_[ac], component, info.DCT_scaled_size > 1};
  }
  return true;
}

// Known only if there is one for each interval, and each is behind the right marker: then, since a marker
// can't be in coded data, they are those of this file.
void HuffmanScan::SetStarts(RestartIndex index, uint32_t mcus) {
  starts_.clear();
  find_starts_ = false;
  const size_t markers = (mcus - 1) / interval_size_;
  if (index.empty() || markers == 0) return;
  starts_.push_back(0);
  find_starts_ = std::ranges::equal(index, kFindRestarts);
  if (find_starts_) return;
  const auto size = static_cast<size_t>(source_end_ - scan_);
  size_t start = 0;
  for (size_t i = 0; i < markers; ++i) {
    const auto length = TakeVarint(index);
    if (!length || *length < 2 || *length > size - start) break;
    start += *length;
    if (scan_[start - 2] != 0xFF || scan_[start - 1] != JPEG_RST0 + (i & 7)) break;
    starts_.push_back(static_cast<uint32_t>(start));
  }
  if (starts_.size() != markers + 1 || !index.empty()) starts_.clear();
}

bool HuffmanScan::TakeOver(j_decompress_ptr cinfo, JpegErrors& errors, RestartIndex index) {
  if (cinfo->progressive_mode || cinfo->arith_code || cinfo->data_precision != 8) return false;
  if (jpeg_has_multiple_scans(cinfo) || cinfo->src->bytes_in_buffer > std::numeric_limits<uint32_t>::max())
    return false;
  if (!SetTables(cinfo)) return false;
  errors_ = &errors;
  columns_ = cinfo->MCUs_per_row;
  const uint32_t mcus = columns_ * cinfo->MCU_rows_in_scan;
  interval_size_ = cinfo->restart_interval > 0 ? cinfo->restart_interval : mcus;
  asked_ = column_ = 0;
  first_column_ = cinfo->master->first_iMCU_col;
  last_column_ = cinfo->master->last_iMCU_col;
  scan_ = cinfo->src->next_input_byte;
  source_end_ = scan_ + cinfo->src->bytes_in_buffer;
  SetStarts(index, mcus);
  StartInterval(0, scan_);
  cinfo->client_data = this;
  cinfo->entropy->decode_mcu = &HuffmanScan::OnMcu;
  return true;
}

boolean HuffmanScan::OnMcu(j_decompress_ptr cinfo, JBLOCKROW* blocks) {
  auto& self = *static_cast<HuffmanScan*>(cinfo->client_data);
  const uint32_t mcu = self.asked_++;
  const uint32_t column = self.column_++;
  if (self.column_ == self.columns_) self.column_ = 0;
  // What nobody wants is parsed when something behind it is wanted, or never.
  if (blocks == nullptr || column < self.first_column_ || column > self.last_column_) return TRUE;
  if (!self.AdvanceTo(mcu) || !self.DecodeMcu(blocks)) self.errors_->GiveUp(kIrregular);
  return TRUE;
}

bool HuffmanScan::FindStart(uint32_t interval) {
  while (starts_.size() <= interval) {
    const uint8_t* marker = FindMarker(scan_ + starts_.back(), source_end_);
    if (source_end_ - marker < 2 || marker[1] != JPEG_RST0 + ((starts_.size() - 1) & 7)) return false;
    starts_.push_back(static_cast<uint32_t>(marker + 2 - scan_));
  }
  return true;
}

bool HuffmanScan::StartInterval(uint32_t interval, const uint8_t* from) {
  interval_ = interval;
  mcu_ = interval * interval_size_;
  left_in_interval_ = interval_size_;
  predicted_ = {};
  source_ = from;
  at_marker_ = false;
  window_ = {.next = buffer_.data()};
  valid_end_ = buffer_.data();
  return true;
}

// Only if the last one was used up to its very end, and the right marker follows at once.
bool HuffmanScan::NextInterval() {
  if (!at_marker_) Fill();
  const ptrdiff_t unused_bits = (valid_end_ - window_.next) * 8 + static_cast<ptrdiff_t>(window_.left);
  if (!at_marker_ || unused_bits < 0 || unused_bits >= 8) return false;
  if (source_end_ - source_ < 2 || source_[1] != JPEG_RST0 + (interval_ & 7)) return false;
  return StartInterval(interval_ + 1, source_ + 2);
}

// Moves what is left to the front and puts more behind it.
void HuffmanScan::Fill() {
  uint8_t* to = std::copy(window_.next, valid_end_, buffer_.data());
  window_.next = buffer_.data();
  // Bits that were read ahead may be of bytes that were not there yet.
  window_.bits = window_.left == 0 ? 0 : window_.bits >> (64 - window_.left) << (64 - window_.left);
  const uint8_t* const full = buffer_.data() + kBufferBytes;
  const uint8_t* from = source_;
  while (to < full) {
    if (source_end_ - from >= 8) [[likely]] {
      uint64_t word;
      std::memcpy(&word, from, 8);
      std::memcpy(to, &word, 8);
      const uint64_t found = FindFF(word);
      if (found == 0) [[likely]] {
        from += 8;
        to += 8;
        continue;
      }
      const int before = std::countr_zero(found) >> 3;
      from += before;
      to += before;
    }
    if (from == source_end_ || (*from == 0xFF && (source_end_ - from < 2 || from[1] != 0))) {
      at_marker_ = true;
      break;
    }
    *to++ = *from;
    from += *from == 0xFF ? 2 : 1;
  }
  source_ = from;
  valid_end_ = to;
  std::fill_n(to, kSlack / 2, uint8_t{0});
}

// Needs DcTable::kBits bits, and leaves as many as DecodeAc needs.
[[gnu::always_inline]] inline bool HuffmanScan::Difference(BitWindow& window, const Block& block) {
  const auto code = (*block.dc)[window];
  window.Refill();
  int value;
  if (code.length == 0) [[unlikely]] {
    const auto decoded = block.dc->Decode(window.bits, window.next, window.left);
    Move(decoded.window, window);
    value = decoded.value;
    if (!decoded.good) return false;
  } else {
    window.Drop(code.length);
    value = TakeValue(window, code.symbol);
  }
  int& predicted = predicted_[static_cast<size_t>(block.component)];
  predicted += value;
  return predicted == static_cast<int16_t>(predicted);
}

[[gnu::always_inline]] inline bool HuffmanScan::FinishMcu(const BitWindow& window) {
  Move(window, window_);
  ++mcu_;
  --left_in_interval_;
  // Whether no more bits were used than there are.
  return window.next - (window.left >> 3) <= valid_end_;
}

template <typename Way>
bool HuffmanScan::SkipMcu() {
  if (valid_end_ - window_.next < kMcuBytes && !at_marker_) Fill();
  BitWindow window;
  Move(window_, window);
  window.Refill();
  for (size_t i = 0; i < block_count_; ++i) {
    if (!Difference(window, blocks_[i])) return false;
    if (!DecodeAc<Way>(window, *blocks_[i].ac, nullptr)) return false;
  }
  return FinishMcu(window);
}

bool HuffmanScan::AdvanceTo(uint32_t mcu) {
  if (!starts_.empty()) {
    const uint32_t interval = mcu / interval_size_;
    if (interval != interval_) {
      if (!FindStart(interval)) return false;
      StartInterval(interval, scan_ + starts_[interval]);
    }
  }
  while (mcu_ < mcu) {
    if (left_in_interval_ == 0 && !NextInterval()) return false;
    if (!(starts_.empty() ? SkipMcu<Leaping>() : SkipMcu<Passing>())) return false;
  }
  return left_in_interval_ > 0 || NextInterval();
}

bool HuffmanScan::DecodeMcu(JBLOCKROW* blocks) {
  if (valid_end_ - window_.next < kMcuBytes && !at_marker_) Fill();
  BitWindow window;
  Move(window_, window);
  window.Refill();
  for (size_t i = 0; i < block_count_; ++i) {
    const Block& block = blocks_[i];
    int16_t* const out = blocks[i][0];
    if (!Difference(window, block)) return false;
    out[0] = static_cast<int16_t>(predicted_[static_cast<size_t>(block.component)]);
    if (!(block.store ? DecodeAc<Storing>(window, *block.ac, out)
                      : DecodeAc<Leaping>(window, *block.ac, nullptr)))
      return false;
  }
  return FinishMcu(window);
}

}  // namespace imgd::data
