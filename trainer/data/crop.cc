#include "trainer/data/crop.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace imgd::data {
namespace {

constexpr int kTries = 10;
constexpr double kMinRatio = 3.0 / 4.0;
constexpr double kMaxRatio = 4.0 / 3.0;

// Python's round(): half to even, which is also the rounding mode that every program starts in.
int RoundHalfToEven(double x) { return static_cast<int>(std::nearbyint(x)); }

}  // namespace

std::optional<Crop> TrySize(int image_width, int image_height, double area_share, double log_ratio) {
  const double area = static_cast<double>(image_width) * image_height * area_share;
  const double ratio = std::exp(log_ratio);
  const int width = RoundHalfToEven(std::sqrt(area * ratio));
  const int height = RoundHalfToEven(std::sqrt(area / ratio));
  if (width <= 0 || width > image_width || height <= 0 || height > image_height) return std::nullopt;
  return Crop{.width = width, .height = height};
}

Crop FallbackCrop(int image_width, int image_height) {
  const double ratio = static_cast<double>(image_width) / image_height;
  Crop crop{.width = image_width, .height = image_height};
  if (ratio < kMinRatio) {
    crop.height = RoundHalfToEven(image_width / kMinRatio);
  } else if (ratio > kMaxRatio) {
    crop.width = RoundHalfToEven(image_height * kMaxRatio);
  }
  crop.top = (image_height - crop.height) / 2;
  crop.left = (image_width - crop.width) / 2;
  return crop;
}

Crop RandomCrop(int image_width, int image_height, double min_scale, Random& random) {
  for (int i = 0; i < kTries; ++i) {
    const double share = random.Uniform(min_scale, 1.0);
    const double log_ratio = random.Uniform(std::log(kMinRatio), std::log(kMaxRatio));
    auto crop = TrySize(image_width, image_height, share, log_ratio);
    if (!crop) continue;
    crop->top = static_cast<int>(random.Below(static_cast<uint32_t>(image_height - crop->height + 1)));
    crop->left = static_cast<int>(random.Below(static_cast<uint32_t>(image_width - crop->width + 1)));
    return *crop;
  }
  return FallbackCrop(image_width, image_height);
}

CenterCropPlan PlanCenterCrop(int image_width, int image_height, int short_side, int crop_size) {
  return PlanCenterCrop(image_width, image_height, short_side, crop_size, crop_size);
}

CenterCropPlan PlanCenterCrop(int image_width, int image_height, int short_side, int crop_width,
                              int crop_height) {
  const auto long_side = [&](int longer, int shorter) {
    return static_cast<int>(int64_t{short_side} * longer / shorter);
  };
  CenterCropPlan plan;
  if (image_width <= image_height) {
    plan.resized_width = short_side;
    plan.resized_height = long_side(image_height, image_width);
  } else {
    plan.resized_height = short_side;
    plan.resized_width = long_side(image_width, image_height);
  }
  plan.crop = {.left = RoundHalfToEven((plan.resized_width - crop_width) / 2.0),
               .top = RoundHalfToEven((plan.resized_height - crop_height) / 2.0),
               .width = crop_width,
               .height = crop_height};
  return plan;
}

}  // namespace imgd::data
