#pragma once

#include <optional>

#include "trainer/data/random.h"

namespace imgd::data {

/// A rectangle of an image, in pixels.
struct Crop {
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;
  bool operator==(const Crop&) const = default;
};

/// One try of RandomResizedCrop: the size of a crop with this share of the area and this log of width/height,
/// at no place yet (left = top = 0); nothing if it does not fit.
std::optional<Crop> TrySize(int image_width, int image_height, double area_share, double log_ratio);

/// What RandomResizedCrop takes after ten tries that did not fit: the largest centred crop of a ratio in
/// [3/4, 4/3].
Crop FallbackCrop(int image_width, int image_height);

/// RandomResizedCrop's crop as torchvision's v2 transform chooses it (_geometry.py): scale in [min_scale, 1],
/// ratio log-uniform in [3/4, 4/3], ten tries, sizes rounded half to even, then top before left.
/// Only the source of randomness is our own.
Crop RandomCrop(int image_width, int image_height, double min_scale, Random& random);

/// Resize(short_side) then CenterCrop(crop_size) as torchvision computes them.
struct CenterCropPlan {
  int resized_width = 0;
  int resized_height = 0;
  Crop crop;  ///< in the resized image
};

/// crop_size must be at most short_side. The long side is truncated, the offsets rounded half to even.
CenterCropPlan PlanCenterCrop(int image_width, int image_height, int short_side, int crop_size);

/// The same for a crop that is no square; it must fit into the resized image.
CenterCropPlan PlanCenterCrop(int image_width, int image_height, int short_side, int crop_width,
                              int crop_height);

}  // namespace imgd::data
