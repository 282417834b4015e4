#pragma once

#include <cstdint>
#include <vector>

#include "common/error.h"
#include "trainer/data/dataset.h"

namespace imgd::data {

/// The long side of a rectangular crop is at most so many times the short one.
inline constexpr int kMaxElongation = 2;

/// Validation in crops that follow the images' shapes: the images sorted by width / height, and the crop of
/// each batch of them.
struct Shapes {
  struct Size {
    int width = 0;
    int height = 0;
    bool operator==(const Size&) const = default;
  };
  std::vector<uint32_t> order;  ///< every image once
  std::vector<Size> batches;    ///< of each global_batch images of `order`
};

/// A batch's crop has a short side of `crop_size`; the long one goes by the batch's least elongated image,
/// rounded down to a multiple of 8 pixels beyond the short one, so that it fits into all of them once their
/// short side is resized to crop_size or more. A batch of upright and lying images is cropped square. Equal
/// shapes keep the data set's order.
/// Reads the headers of images whose size the set does not know, on `workers` threads; one that can't be
/// read counts as square. A function of the set, global_batch and crop_size.
Shapes PlanShapes(const Dataset& dataset, int global_batch, int crop_size, int workers);

}  // namespace imgd::data
