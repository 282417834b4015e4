#pragma once

#include <cstdint>

#include "trainer/data/crop.h"

namespace imgd::data {

/// Mixing of pairs of a step's images: 0 turns one off. With both, each image takes one of them by a coin.
struct MixOptions {
  double mixup = 0;   ///< alpha of the Beta distribution
  double cutmix = 0;  ///< likewise
  bool on() const { return mixup > 0 || cutmix > 0; }
};

/// With which image of the step position p is mixed: its neighbour in (0, 1), (2, 3), ... The last of an odd
/// number has none, and stays as it is. Never a matter of ranks.
constexpr uint32_t MixPartner(uint32_t position) { return position ^ 1U; }

/// How one image is mixed: within `box` it becomes inside * image + (1 - inside) * partner, and its label
/// counts `own`, the partner's 1 - own.
struct Mix {
  double own = 1;
  double inside = 1;
  Crop box;
  bool operator==(const Mix&) const = default;
};

/// The mix of position `position` of step `step` of the run, for images of this size. A function of its
/// arguments alone. Sources: Zhang et al., "mixup", 2018; Yun et al., "CutMix", 2019, with the box as
/// torchvision's v2.CutMix cuts it (cut off at the edges, `own` then goes by what is left of it).
Mix MixOf(const MixOptions& options, uint64_t seed, uint64_t step, uint32_t position, int width, int height);

}  // namespace imgd::data
