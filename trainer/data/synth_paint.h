#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/synth_shapes.h"

namespace imgd::data {

/// Which picture of a class.
struct PictureId {
  uint64_t seed = 0;
  uint32_t split = 0;  ///< 0 training, 1 validation
  uint32_t number = 0;
};

/// Paints a "photograph" of the class's shape: on a mottled ground with clutter, somewhere in the frame and
/// turned anyhow, 35 to 70 % of its shorter side, in any two colours, lighter or darker than the ground, with
/// a shadow, uneven light and sensor noise. The same pixels for the same arguments, [height, width, 3] RGB.
std::vector<uint8_t> PaintPicture(const SynthClass& what, const PictureId& id, int width, int height);

}  // namespace imgd::data
