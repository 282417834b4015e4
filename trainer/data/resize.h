#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/image.h"

namespace imgd::data {

/// Antialiased bilinear resizing, as PIL's BILINEAR: a triangle filter that is widened by the scale when it
/// shrinks. In whole numbers (weights of 14 bits, 7 bits behind the point between the two passes), so the
/// same bytes on every processor. Keeps its scratch memory between calls; one thread at a time.
class Resizer {
 public:
  /// Resamples `box` of `source` to width x height. The filter reaches over the box's edges where `source`
  /// has pixels there, and is cut off and renormalised at the edges of `source`. `flip` mirrors left and
  /// right. `out` gets height * width * 3 bytes, [H, W, 3] RGB.
  void Resize(const ImageView& source, const Box& box, int width, int height, bool flip, uint8_t* out);

 private:
  // Which pixels of a line make one pixel of the result, and with what weight, out of 2^14. An even number
  // of weights for each pixel, so that they can be taken in pairs; those too many are 0.
  struct Taps {
    std::vector<int> first;        // [n]
    std::vector<int> count;        // [n]
    std::vector<int16_t> weights;  // [n, stride]
    int stride = 0;
    const int16_t* of(int i) const { return weights.data() + static_cast<ptrdiff_t>(i) * stride; }
  };

  static void Plan(double start, double length, int source_size, int result_size, Taps& taps,
                   std::vector<double>& exact);
  void PlanAcross(int width, bool flip);

  Taps horizontal_;
  Taps vertical_;
  int first_column_ = 0;  // of the source, that is needed
  int columns_ = 0;
  int pairs_ = 0;                 // of weights for each pixel of the result
  std::vector<int> from_;         // [width rounded up to fours] place in line_ of the first pixel
  std::vector<int32_t> weights_;  // [width / 4, pairs_, 16] pairs, as FinishLine takes them
  std::vector<int16_t> line_;     // one row of the result, not yet resized horizontally; 2^7 is 1
  std::vector<double> exact_;     // scratch of Plan()
};

}  // namespace imgd::data
