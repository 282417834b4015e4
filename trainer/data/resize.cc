#include "trainer/data/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

// The wide version is picked when the program is loaded. Without fused multiply-add (avx2 alone does not
// allow it, and -ffp-contract=off forbids it elsewhere) both give the same bytes. Sanitizers can't run such
// pickers.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define IMGD_VECTORISED __attribute__((target_clones("avx2", "default")))
#else
#define IMGD_VECTORISED
#endif

namespace imgd::data {
namespace {

using Vector4 = float __attribute__((vector_size(16)));

IMGD_VECTORISED void ScaleRow(const uint8_t* __restrict source, float weight, size_t n,
                              float* __restrict line) {
  for (size_t i = 0; i < n; ++i) line[i] = weight * static_cast<float>(source[i]);
}

IMGD_VECTORISED void AddRow(const uint8_t* __restrict source, float weight, size_t n,
                            float* __restrict line) {
  for (size_t i = 0; i < n; ++i) line[i] += weight * static_cast<float>(source[i]);
}

IMGD_VECTORISED void AddTwoRows(const uint8_t* __restrict a, float weight_a, const uint8_t* __restrict b,
                                float weight_b, size_t n, float* __restrict line) {
  for (size_t i = 0; i < n; ++i) {
    line[i] += weight_a * static_cast<float>(a[i]) + weight_b * static_cast<float>(b[i]);
  }
}

Vector4 Load(const float* p) {
  Vector4 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

// Weights are positive and sum to one, so the value is within [0, 255] but for rounding.
uint8_t ToByte(float value) { return static_cast<uint8_t>(static_cast<int>(std::min(value + 0.5F, 255.0F))); }

}  // namespace

void Resizer::Plan(double start, double length, int source_size, int result_size, Taps& taps) {
  const double scale = length / result_size;
  const double radius = std::max(scale, 1.0);
  const auto n = static_cast<size_t>(result_size);
  taps.stride = static_cast<int>(std::ceil(radius)) * 2 + 1;
  taps.first.resize(n);
  taps.count.resize(n);
  taps.weights.assign(n * static_cast<size_t>(taps.stride), 0.0F);
  std::vector<double> exact(static_cast<size_t>(taps.stride));
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
    auto* weights = taps.weights.data() + static_cast<ptrdiff_t>(i) * taps.stride;
    for (int k = 0; k < count; ++k) {
      weights[k] = static_cast<float>(sum > 0 ? exact[static_cast<size_t>(k)] / sum : 1.0 / count);
    }
    taps.first[static_cast<size_t>(i)] = first;
    taps.count[static_cast<size_t>(i)] = count;
  }
}

void Resizer::Resize(const ImageView& source, const Box& box, int width, int height, bool flip,
                     uint8_t* out) {
  Plan(box.left, box.width, source.width, width, horizontal_);
  Plan(box.top, box.height, source.height, height, vertical_);
  const auto line_size = static_cast<size_t>(source.width) * 4;
  line_.resize(line_size);
  for (int y = 0; y < height; ++y) {
    const float* down = vertical_.of(y);
    const int first_row = vertical_.first[static_cast<size_t>(y)];
    const int rows = vertical_.count[static_cast<size_t>(y)];
    ScaleRow(source.row(first_row), down[0], line_size, line_.data());
    int k = 1;
    for (; k + 1 < rows; k += 2) {
      AddTwoRows(source.row(first_row + k), down[k], source.row(first_row + k + 1), down[k + 1], line_size,
                 line_.data());
    }
    if (k < rows) AddRow(source.row(first_row + k), down[k], line_size, line_.data());

    uint8_t* pixel = out + static_cast<ptrdiff_t>(y) * width * 3 + (flip ? (width - 1) * 3 : 0);
    const ptrdiff_t step = flip ? -3 : 3;
    for (int x = 0; x < width; ++x, pixel += step) {
      const float* across = horizontal_.of(x);
      const float* from =
          line_.data() + static_cast<ptrdiff_t>(horizontal_.first[static_cast<size_t>(x)]) * 4;
      const int columns = horizontal_.count[static_cast<size_t>(x)];
      Vector4 sum = Load(from) * across[0];
      for (int c = 1; c < columns; ++c) sum += Load(from + c * 4) * across[c];
      pixel[0] = ToByte(sum[0]);
      pixel[1] = ToByte(sum[1]);
      pixel[2] = ToByte(sum[2]);
    }
  }
}

}  // namespace imgd::data
