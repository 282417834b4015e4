#include "trainer/data/augment.h"

#include <cmath>

namespace imgd::data {

std::optional<Crop> ErasedBox(double probability, int width, int height, Random& random) {
  if (random.Uniform() >= probability) return std::nullopt;
  const double area = static_cast<double>(width) * height;
  for (int i = 0; i < 10; ++i) {
    const double share = area * random.Uniform(0.02, 0.33);
    const double ratio = std::exp(random.Uniform(std::log(0.3), std::log(3.3)));
    const int h = static_cast<int>(std::nearbyint(std::sqrt(share * ratio)));
    const int w = static_cast<int>(std::nearbyint(std::sqrt(share / ratio)));
    if (h >= height || w >= width || h < 1 || w < 1) continue;
    Crop box{.width = w, .height = h};
    box.top = static_cast<int>(random.Below(static_cast<uint32_t>(height - h + 1)));
    box.left = static_cast<int>(random.Below(static_cast<uint32_t>(width - w + 1)));
    return box;
  }
  return std::nullopt;
}

}  // namespace imgd::data
