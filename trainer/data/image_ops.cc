#include "trainer/data/image_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace imgd::data {
namespace {

using Table = std::array<uint8_t, 256>;

/// As a float tensor becomes one of bytes: cut off, not rounded.
uint8_t Clamped(float value) { return static_cast<uint8_t>(std::clamp(value, 0.0F, 255.0F)); }

void Apply(RgbImage image, const Table& table) {
  for (size_t i = 0; i < image.bytes(); ++i) image.data[i] = table[image.data[i]];
}

/// ratio * a + (1 - ratio) * b.
uint8_t Blend(uint8_t a, float b, float ratio, float rest) {
  return Clamped(static_cast<float>(a) * ratio + b * rest);
}

/// Grey value of a pixel, a whole number.
float Grey(const uint8_t* pixel) {
  return std::floor(static_cast<float>(pixel[0]) * 0.2989F + static_cast<float>(pixel[1]) * 0.587F +
                    static_cast<float>(pixel[2]) * 0.114F);
}

/// Reads a copy of an image at places that need not be in it.
struct Sampler {
  const uint8_t* data;
  int width;
  int height;

  const uint8_t* At(int x, int y) const {
    if (x < 0 || y < 0 || x >= width || y >= height) return nullptr;
    return data + (static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x)) * 3;
  }

  void Nearest(float x, float y, uint8_t* out) const {
    const uint8_t* from = At(static_cast<int>(std::nearbyint(x)), static_cast<int>(std::nearbyint(y)));
    for (int c = 0; c < 3; ++c) out[c] = from != nullptr ? from[c] : 0;
  }

  void Bilinear(float x, float y, uint8_t* out) const {
    const float left = std::floor(x);
    const float top = std::floor(y);
    float sum[3] = {0, 0, 0};
    for (int k = 0; k < 4; ++k) {
      const float px = left + static_cast<float>(k & 1);
      const float py = top + static_cast<float>(k >> 1);
      const uint8_t* from = At(static_cast<int>(px), static_cast<int>(py));
      if (from == nullptr) continue;
      const float weight = (1 - std::abs(x - px)) * (1 - std::abs(y - py));
      for (int c = 0; c < 3; ++c) sum[c] += weight * static_cast<float>(from[c]);
    }
    for (int c = 0; c < 3; ++c) out[c] = Clamped(std::nearbyint(sum[c]));
  }
};

/// 3x3 mean around a pixel of the inside, whose middle counts five times; rounded.
float Blurred(const uint8_t* middle, size_t row) {
  int sum = 5 * *middle + *(middle - 3) + *(middle + 3);
  for (const uint8_t* line : {middle - row, middle + row}) sum += *line + *(line - 3) + *(line + 3);
  return std::nearbyint(static_cast<float>(sum) / 13.0F);
}

}  // namespace

std::span<const uint8_t> ImageOps::Copy(RgbImage image) {
  copy_.assign(image.data, image.data + image.bytes());
  return copy_;
}

void ImageOps::Affine(RgbImage image, const double (&m)[6], Sampling sampling) {
  const Sampler from{Copy(image).data(), image.width, image.height};
  const auto width = static_cast<float>(image.width);
  const auto height = static_cast<float>(image.height);
  // In torchvision's order of operations, in floats, so that ties fall to the same side.
  std::array<float, 6> theta;
  for (size_t i = 0; i < 6; ++i) theta[i] = static_cast<float>(m[i]) / (0.5F * (i < 3 ? width : height));
  uint8_t* out = image.data;
  for (int row = 0; row < image.height; ++row) {
    const float y = (1 - height) * 0.5F + static_cast<float>(row);
    for (int column = 0; column < image.width; ++column, out += 3) {
      const float x = (1 - width) * 0.5F + static_cast<float>(column);
      const float u = x * theta[0] + y * theta[1] + theta[2];
      const float v = x * theta[3] + y * theta[4] + theta[5];
      // Far outside all is black, and a whole number of an int is not exceeded.
      const float at_x = std::clamp(((u + 1) * width - 1) / 2, -2.0F, width + 1);
      const float at_y = std::clamp(((v + 1) * height - 1) / 2, -2.0F, height + 1);
      sampling == Sampling::kNearest ? from.Nearest(at_x, at_y, out) : from.Bilinear(at_x, at_y, out);
    }
  }
}

void ImageOps::ShearX(RgbImage image, double amount, Sampling sampling) {
  Affine(image, {1, amount, amount * image.height / 2, 0, 1, 0}, sampling);
}

void ImageOps::ShearY(RgbImage image, double amount, Sampling sampling) {
  Affine(image, {1, 0, 0, amount, 1, amount * image.width / 2}, sampling);
}

void ImageOps::TranslateX(RgbImage image, int pixels, Sampling sampling) {
  Affine(image, {1, 0, -static_cast<double>(pixels), 0, 1, 0}, sampling);
}

void ImageOps::TranslateY(RgbImage image, int pixels, Sampling sampling) {
  Affine(image, {1, 0, 0, 0, 1, -static_cast<double>(pixels)}, sampling);
}

void ImageOps::Rotate(RgbImage image, double degrees, Sampling sampling) {
  if (degrees == 0) return;
  const double angle = -degrees * std::numbers::pi / 180;
  const double c = std::cos(angle);
  const double s = std::sin(angle);
  Affine(image, {c, s, 0, -s, c, 0}, sampling);
}

void ImageOps::Brightness(RgbImage image, double factor) {
  Table table;
  for (size_t i = 0; i < 256; ++i) table[i] = Clamped(static_cast<float>(i) * static_cast<float>(factor));
  Apply(image, table);
}

void ImageOps::Saturation(RgbImage image, double factor) {
  const auto ratio = static_cast<float>(factor);
  const auto rest = static_cast<float>(1 - factor);
  for (uint8_t* p = image.data; p != image.data + image.bytes(); p += 3) {
    const float grey = Grey(p);
    for (int c = 0; c < 3; ++c) p[c] = Blend(p[c], grey, ratio, rest);
  }
}

void ImageOps::Contrast(RgbImage image, double factor) {
  if (image.bytes() == 0) return;
  double sum = 0;
  for (const uint8_t* p = image.data; p != image.data + image.bytes(); p += 3) sum += Grey(p);
  const auto mean = static_cast<float>(sum / static_cast<double>(image.pixels()));
  Table table;
  for (size_t i = 0; i < 256; ++i) {
    table[i] =
        Blend(static_cast<uint8_t>(i), mean, static_cast<float>(factor), static_cast<float>(1 - factor));
  }
  Apply(image, table);
}

void ImageOps::Sharpness(RgbImage image, double factor) {
  if (image.height <= 2 || image.width <= 2) return;
  const uint8_t* from = Copy(image).data();
  const size_t row = static_cast<size_t>(image.width) * 3;
  const auto rest = static_cast<float>(1 - factor);
  for (size_t y = 1; y + 1 < static_cast<size_t>(image.height); ++y) {
    for (size_t i = y * row + 3; i < (y + 1) * row - 3; ++i) {
      const auto value = static_cast<float>(from[i]);
      image.data[i] = Clamped(value + (Blurred(from + i, row) - value) * rest);
    }
  }
}

void ImageOps::Posterize(RgbImage image, int bits) {
  if (bits >= 8) return;
  const auto mask = static_cast<uint8_t>(0xFF00U >> std::max(bits, 0));
  for (size_t i = 0; i < image.bytes(); ++i) image.data[i] &= mask;
}

void ImageOps::Solarize(RgbImage image, double threshold) {
  Table table;
  for (size_t i = 0; i < 256; ++i) {
    table[i] = static_cast<uint8_t>(static_cast<double>(i) >= threshold ? 255 - i : i);
  }
  Apply(image, table);
}

void ImageOps::AutoContrast(RgbImage image) {
  for (size_t c = 0; c < 3; ++c) {
    uint8_t low = 255;
    uint8_t high = 0;
    for (size_t i = c; i < image.bytes(); i += 3) {
      low = std::min(low, image.data[i]);
      high = std::max(high, image.data[i]);
    }
    if (low >= high) continue;
    const float scale = static_cast<float>(high - low) * static_cast<float>(1.0 / 255);
    Table table{};
    for (size_t i = low; i <= high; ++i) table[i] = Clamped(static_cast<float>(i - low) / scale);
    for (size_t i = c; i < image.bytes(); i += 3) image.data[i] = table[image.data[i]];
  }
}

void ImageOps::Equalize(RgbImage image) {
  for (size_t c = 0; c < 3; ++c) {
    std::array<uint64_t, 256> count{};
    for (size_t i = c; i < image.bytes(); i += 3) ++count[image.data[i]];
    const auto last = std::find_if(count.rbegin(), count.rend(), [](uint64_t n) { return n > 0; });
    const uint64_t step = last == count.rend() ? 0 : (image.pixels() - *last) / 255;
    if (step == 0) continue;
    Table table;
    uint64_t before = step / 2;
    for (size_t i = 0; i < 256; ++i) {
      table[i] = static_cast<uint8_t>(std::min<uint64_t>(before / step, 255));
      before += count[i];
    }
    for (size_t i = c; i < image.bytes(); i += 3) image.data[i] = table[image.data[i]];
  }
}

}  // namespace imgd::data
