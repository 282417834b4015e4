#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/image.h"

namespace imgd::data {

/// Antialiased bilinear resizing, as PIL's BILINEAR: a triangle filter that is widened by the scale when it
/// shrinks. One rounding, at the end; the same bytes on every processor.
/// Keeps its scratch memory between calls; one thread at a time.
class Resizer {
 public:
  /// Resamples `box` of `source` to width x height. The filter reaches over the box's edges where `source`
  /// has pixels there, and is cut off and renormalised at the edges of `source`. `flip` mirrors left and
  /// right. `out` gets height * width * 3 bytes, [H, W, 3] RGB.
  void Resize(const ImageView& source, const Box& box, int width, int height, bool flip, uint8_t* out);

 private:
  // Which pixels of a line make one pixel of the result, and with what weight.
  struct Taps {
    std::vector<int> first;      // [n]
    std::vector<int> count;      // [n]
    std::vector<float> weights;  // [n, stride]
    int stride = 0;
    const float* of(int i) const { return weights.data() + static_cast<ptrdiff_t>(i) * stride; }
  };

  static void Plan(double start, double length, int source_size, int result_size, Taps& taps);

  Taps horizontal_;
  Taps vertical_;
  std::vector<float> line_;  // one row of the result, not yet resized horizontally
};

}  // namespace imgd::data
