#pragma once

#include <optional>

#include "trainer/data/crop.h"
#include "trainer/data/rand_augment.h"
#include "trainer/data/random.h"

namespace imgd::data {

/// What is done to a training image after crop and flip.
struct AugmentOptions {
  PolicyOptions policy;
  double erasing = 0;  ///< chance that a box of the image is erased, 0 to 1
};

/// RandomErasing's box as torchvision's v2 transform chooses it (_augment.py): with chance `probability` a
/// share of the area in [0.02, 0.33], a ratio height/width log-uniform in [0.3, 3.3], ten tries, sizes
/// rounded half to even, then top before left. Nothing where no box is to be erased, or none fitted.
/// Only the source of randomness is our own.
std::optional<Crop> ErasedBox(double probability, int width, int height, Random& random);

}  // namespace imgd::data
