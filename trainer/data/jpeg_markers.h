#pragma once

#include <cstdint>
#include <span>

namespace imgd::data {

/// The next marker at or behind `from`, in Huffman-coded data: its 0xFF, that something other than 0 follows.
/// `end` when there is none.
const uint8_t* FindMarker(const uint8_t* from, const uint8_t* end);

/// The data behind the header of a file's first scan, up to the file's end; empty when there are none.
std::span<const uint8_t> FirstScan(std::span<const uint8_t> file);

}  // namespace imgd::data
