#include "trainer/data/resize.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "trainer/data/resize_kernels.h"

namespace imgd::data {
namespace {

constexpr int kOne = 1 << 14;  // as a weight

}  // namespace

void Resizer::Plan(double start, double length, int source_size, int result_size, Taps& taps,
                   std::vector<double>& exact) {
  const double scale = length / result_size;
  const double radius = std::max(scale, 1.0);
  const auto n = static_cast<size_t>(result_size);
  taps.stride = static_cast<int>(std::ceil(radius)) * 2 + 2;
  taps.first.resize(n);
  taps.count.resize(n);
  taps.weights.assign(n * static_cast<size_t>(taps.stride), 0);
  exact.resize(static_cast<size_t>(taps.stride));
  for (int i = 0; i < result_size; ++i) {
    const double center = start + (i + 0.5) * scale;
    const int first = std::clamp(static_cast<int>(std::floor(center - radius + 0.5)), 0, source_size - 1);
    const int last = std::clamp(static_cast<int>(std::floor(center + radius + 0.5)), first + 1, source_size);
    const int count = std::min(last - first, taps.stride);
    double sum = 0;
    for (int k = 0; k < count; ++k) {
      const double distance = std::abs(first + k + 0.5 - center) / radius;
      exact[static_cast<size_t>(k)] = std::max(0.0, 1.0 - distance);
      sum += exact[static_cast<size_t>(k)];
    }
    // The sums are rounded, not the weights, so that these make up kOne.
    auto* weights = taps.weights.data() + static_cast<ptrdiff_t>(i) * taps.stride;
    double part = 0;
    int before = 0;
    for (int k = 0; k < count; ++k) {
      part += sum > 0 ? exact[static_cast<size_t>(k)] / sum : 1.0 / count;
      const int now = k == count - 1 ? kOne : std::min(static_cast<int>(part * kOne + 0.5), kOne);
      weights[k] = static_cast<int16_t>(now - before);
      before = now;
    }
    taps.first[static_cast<size_t>(i)] = first;
    taps.count[static_cast<size_t>(i)] = count;
  }
}

// Lays the horizontal weights out for FinishLine, from right to left if the picture is mirrored.
void Resizer::PlanAcross(int width, bool flip) {
  const auto [least, most] = std::ranges::minmax_element(horizontal_.first);
  first_column_ = *least;
  columns_ = *most + horizontal_.count[static_cast<size_t>(most - horizontal_.first.begin())] - *least;
  pairs_ = (*std::ranges::max_element(horizontal_.count) + 1) / 2;
  const int padded = (width + 3) / 4 * 4;
  from_.resize(static_cast<size_t>(padded));
  weights_.resize(static_cast<size_t>(padded) * static_cast<size_t>(pairs_) * 4);
  for (int x = 0; x < padded; ++x) {
    const int i = std::min(x, width - 1);
    const int tap = flip ? width - 1 - i : i;
    const int16_t* weights = horizontal_.of(tap);
    from_[static_cast<size_t>(x)] = horizontal_.first[static_cast<size_t>(tap)] - first_column_;
    constexpr std::array<int, 4> kPlace = {0, 8, 4, 12};
    int32_t* to =
        weights_.data() + static_cast<ptrdiff_t>(x / 4) * pairs_ * 16 + kPlace[static_cast<size_t>(x % 4)];
    for (int p = 0; p < pairs_; ++p, to += 16) {
      const int32_t pair = weights[2 * p] | weights[2 * p + 1] * 65536;
      std::fill_n(to, 4, pair);
    }
  }
  line_.resize(static_cast<size_t>(columns_ + 2 * pairs_) * 4);
}

void Resizer::Resize(const ImageView& source, const Box& box, int width, int height, bool flip,
                     uint8_t* out) {
  Plan(box.left, box.width, source.width, width, horizontal_, exact_);
  Plan(box.top, box.height, source.height, height, vertical_, exact_);
  PlanAcross(width, flip);
  const auto pitch = static_cast<size_t>(source.row(1) - source.row(0));
  const auto bytes = static_cast<size_t>(columns_) * 4;
  for (int y = 0; y < height; ++y) {
    const int first = vertical_.first[static_cast<size_t>(y)];
    BlendRows(source.row(first) + static_cast<ptrdiff_t>(first_column_) * 4, pitch,
              vertical_.count[static_cast<size_t>(y)], vertical_.of(y), bytes, line_.data());
    FinishLine(line_.data(), from_.data(), weights_.data(), pairs_, width,
               out + static_cast<ptrdiff_t>(y) * width * 3);
  }
}

}  // namespace imgd::data
