#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/data/huffman_table.h"
#include "trainer/data/jpeg_errors.h"
#include "trainer/data/restart_index.h"

namespace imgd::data {

/// Decodes the Huffman-coded data of a JPEG file in libjpeg's place, several times as fast: only the blocks
/// that libjpeg transforms are decoded, others are parsed, jumped over where restart markers allow, or never
/// looked at. All else, and so each pixel, stays libjpeg's.
/// Takes data that libjpeg would decode without a word and nothing else; what is irregular in any way is left
/// to libjpeg, by giving up. Keeps its memory between files; one thread at a time.
class HuffmanScan {
 public:
  /// What GiveUp() says when the data are irregular.
  static constexpr const char* kIrregular = "irregular Huffman data";

  HuffmanScan();

  /// Takes over from libjpeg, between jpeg_start_decompress (and jpeg_crop_scanline) and the first row; sets
  /// client_data. False, and libjpeg decodes by itself, for files that are not sequential Huffman-coded in
  /// one scan. `index` may be empty; it is not used when it is not that of this file.
  bool TakeOver(j_decompress_ptr cinfo, JpegErrors& errors, RestartIndex index);

 private:
  struct Block {
    DcTable* dc;
    AcTable* ac;
    int component;
    bool store;  ///< false: only the DC value is wanted
  };

  static boolean OnMcu(j_decompress_ptr cinfo, JBLOCKROW* blocks);
  bool SetTables(j_decompress_ptr cinfo);
  void SetStarts(RestartIndex index, uint32_t mcus);

  bool AdvanceTo(uint32_t mcu);
  bool FindStart(uint32_t interval);
  bool StartInterval(uint32_t interval, const uint8_t* from);
  bool NextInterval();
  template <typename Way>
  bool SkipMcu();
  bool DecodeMcu(JBLOCKROW* blocks);
  bool Difference(BitWindow& window, const Block& block);
  bool FinishMcu(const BitWindow& window);

  void Fill();

  std::array<DcTable, NUM_HUFF_TBLS> dc_tables_;
  std::array<AcTable, NUM_HUFF_TBLS> ac_tables_;
  std::array<Block, D_MAX_BLOCKS_IN_MCU> blocks_{};
  size_t block_count_ = 0;
  std::array<int, MAX_COMPS_IN_SCAN> predicted_{};
  JpegErrors* errors_ = nullptr;

  std::vector<uint8_t> buffer_;  ///< data without the bytes stuffed in after 0xFF
  BitWindow window_;             ///< into buffer_
  const uint8_t* valid_end_ = nullptr;
  const uint8_t* source_ = nullptr;  ///< next byte that is not in buffer_
  const uint8_t* source_end_ = nullptr;
  const uint8_t* scan_ = nullptr;  ///< where the coded data start
  bool at_marker_ = false;         ///< source_ is at a marker, or at the end

  uint32_t mcu_ = 0;               ///< the next in the data
  uint32_t interval_ = 0;          ///< in which that is
  uint32_t interval_size_ = 0;     ///< MCUs; without restart markers all
  uint32_t left_in_interval_ = 0;  ///< MCUs
  std::vector<uint32_t> starts_;   ///< of restart intervals, from scan_, as far as known; empty: never jump
  bool find_starts_ = false;       ///< the others can be looked for

  uint32_t asked_ = 0;  ///< the MCU that libjpeg asks for next
  uint32_t column_ = 0;
  uint32_t columns_ = 0;
  uint32_t first_column_ = 0;  ///< libjpeg transforms only these columns
  uint32_t last_column_ = 0;
};

}  // namespace imgd::data
