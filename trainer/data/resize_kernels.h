#pragma once

#include <cstddef>
#include <cstdint>

namespace imgd::data {

/// The two inner loops of resizing, in whole numbers: each processor's version gives the same.

/// One line of `bytes` values from `rows` (1 or more) rows of as many, `pitch` apart:
/// line[i] = (sum of weights[k] * row k[i] + 2^6) >> 7. `weights` sum up to 2^14; they are an even number,
/// the last one is 0 where `rows` is odd.
void BlendRows(const uint8_t* first_row, size_t pitch, int rows, const int16_t* weights, size_t bytes,
               int16_t* line);

/// Four pixels after the other from a line of such, 4 values each, `width` of them: the sum of weight *
/// pixel of `pairs` * 2 pixels from line[from[x] * 4] on, >> 21 and rounded. `out` gets width * 3 bytes.
/// `from` has a multiple of 4 entries. `weights`: for each 4 pixels of the result, each pair: two neighbours'
/// weights in one number, the left one in the lower half, 4 times over for pixel 0, 2, 1, 3.
void FinishLine(const int16_t* line, const int* from, const int32_t* weights, int pairs, int width,
                uint8_t* out);

}  // namespace imgd::data
