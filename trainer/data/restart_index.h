#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/error.h"

namespace imgd::data {

/// Where the restart intervals of a JPEG file begin, packed: for each but the last the bytes from its first
/// to the marker behind it, that included, as a varint. Empty: nothing is known.
using RestartIndex = std::span<const uint8_t>;

/// Instead of a file's own: its restart markers are good, and are to be looked for, which costs a little.
constexpr std::array<uint8_t, 1> kFindRestarts = {0};

/// The number at the front of `bytes`, seven bits a byte, the lowest first, the last byte below 128; takes it
/// off. Nothing where there is none below 2^32.
std::optional<uint32_t> TakeVarint(std::span<const uint8_t>& bytes);

/// Whether `index` can be that of a file of so many bytes.
bool IsRestartIndex(RestartIndex index, uint64_t file_bytes);

struct RestartMarked {
  bool changed = false;  ///< false: a file that can't be marked without changing a pixel; `file` is as it was
  std::string file;
  std::string index;  ///< RestartIndex of `file`; empty too where one interval holds all
};

/// The same picture with restart markers, so that a decoder can jump over the parts of it that a crop does
/// not need: an interval is a part of a row of blocks at least 64 pixels wide where such parts make up the
/// row, else the row. Coefficients and all APPn and COM markers stay bit for bit; the Huffman codes are made
/// for the picture, which makes files about 3 % smaller. Progressive files become sequential ones.
/// Unchanged: files that libjpeg warns about, progressive ones that lack scans, colour spaces not known.
/// Errors: those of libjpeg, kDataLoss.
Result<RestartMarked> AddRestartMarkers(std::span<const uint8_t> file);

}  // namespace imgd::data
