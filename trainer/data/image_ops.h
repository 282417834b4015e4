#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace imgd::data {

/// An image of bytes, [H, W, 3] RGB, that somebody else owns.
struct RgbImage {
  uint8_t* data = nullptr;
  int width = 0;
  int height = 0;
  size_t pixels() const { return static_cast<size_t>(width) * static_cast<size_t>(height); }
  size_t bytes() const { return pixels() * 3; }
};

/// The operations of RandAugment and TrivialAugment, on bytes, in place. Each gives what torchvision's v2
/// functional of the same name gives for a uint8 tensor (transforms/v2/functional/_color.py, _geometry.py),
/// but for a rounding of floats here and there.
///
/// Where an operation moves pixels, what comes from outside is black.
class ImageOps {
 public:
  enum class Sampling { kNearest, kBilinear };

  /// (x, y) of the result comes from (m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5]), all counted from the
  /// image's centre.
  void Affine(RgbImage image, const double (&m)[6], Sampling sampling);
  /// Rows move to the left by `amount` pixels for each row from the top; ShearY: columns, up.
  void ShearX(RgbImage image, double amount, Sampling sampling);
  void ShearY(RgbImage image, double amount, Sampling sampling);
  void TranslateX(RgbImage image, int pixels, Sampling sampling);
  void TranslateY(RgbImage image, int pixels, Sampling sampling);
  /// Counter-clockwise.
  void Rotate(RgbImage image, double degrees, Sampling sampling);

  void Brightness(RgbImage image, double factor);
  void Saturation(RgbImage image, double factor);
  void Contrast(RgbImage image, double factor);
  void Sharpness(RgbImage image, double factor);
  /// Keeps the highest `bits` bits, 0 to 8.
  void Posterize(RgbImage image, int bits);
  /// Inverts what is `threshold` or more, 0 to 255.
  void Solarize(RgbImage image, double threshold);
  void AutoContrast(RgbImage image);
  void Equalize(RgbImage image);

 private:
  std::span<const uint8_t> Copy(RgbImage image);

  std::vector<uint8_t> copy_;  ///< of the image, where an operation reads what it has overwritten
};

}  // namespace imgd::data
