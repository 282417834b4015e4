#include "trainer/data/image_decoder.h"

#include <algorithm>
#include <cmath>

namespace imgd::data {

PixelRegion RegionOf(const Box& box, double margin, double scale, int width, int height) {
  const double scaled_width = std::ceil(width * scale);
  const double scaled_height = std::ceil(height * scale);
  // A product that should be a whole number may be off by a rounding error.
  constexpr double kSlack = 1e-6;
  const auto low = [&](double edge, double size) {
    return static_cast<int>(std::clamp(std::floor((edge - margin) * scale + kSlack), 0.0, size - 1));
  };
  const auto high = [&](double edge, double size) {
    return static_cast<int>(std::clamp(std::ceil((edge + margin) * scale - kSlack), 1.0, size));
  };
  return {low(box.left, scaled_width), low(box.top, scaled_height), high(box.left + box.width, scaled_width),
          high(box.top + box.height, scaled_height)};
}

}  // namespace imgd::data
