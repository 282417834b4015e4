#include "trainer/data/rand_augment.h"

#include <array>
#include <cmath>

namespace imgd::data {
namespace {

struct OpRow {
  std::string_view name;
  bool is_signed;
  double strongest_rand;     ///< in bin 30
  double strongest_trivial;  ///< likewise
};

// Translations of RandAugment go by the image's size, see below. Posterize loses so many of 8 bits.
constexpr std::array<OpRow, kPolicyOps> kOps = {{
    {"Identity", false, 0, 0},
    {"ShearX", true, 0.3, 0.99},
    {"ShearY", true, 0.3, 0.99},
    {"TranslateX", true, 150.0 / 331.0, 32},
    {"TranslateY", true, 150.0 / 331.0, 32},
    {"Rotate", true, 30, 135},
    {"Brightness", true, 0.9, 0.99},
    {"Color", true, 0.9, 0.99},
    {"Contrast", true, 0.9, 0.99},
    {"Sharpness", true, 0.9, 0.99},
    {"Posterize", false, 4, 6},
    {"Solarize", false, 1, 1},
    {"AutoContrast", false, 0, 0},
    {"Equalize", false, 0, 0},
}};

const OpRow& RowOf(PolicyOp op) { return kOps[static_cast<size_t>(op)]; }

}  // namespace

std::string_view PolicyOpName(PolicyOp op) { return RowOf(op).name; }

bool IsSigned(PolicyOp op) { return RowOf(op).is_signed; }

double PolicyMagnitude(Policy policy, PolicyOp op, int bin, int width, int height) {
  const bool rand = policy == Policy::kRandAugment;
  const double strongest = rand ? RowOf(op).strongest_rand : RowOf(op).strongest_trivial;
  const double value = strongest * bin / (kPolicyBins - 1);
  switch (op) {
    case PolicyOp::kTranslateX:
      return rand ? value * width : value;
    case PolicyOp::kTranslateY:
      return rand ? value * height : value;
    case PolicyOp::kPosterize:
      return std::nearbyint(8 - value);
    case PolicyOp::kSolarize:
      return 1 - value;
    default:
      return value;
  }
}

void ApplyPolicyOp(ImageOps& ops, PolicyOp op, double magnitude, ImageOps::Sampling sampling,
                   RgbImage image) {
  switch (op) {
    case PolicyOp::kIdentity:
      return;
    case PolicyOp::kShearX:
      return ops.ShearX(image, magnitude, sampling);
    case PolicyOp::kShearY:
      return ops.ShearY(image, magnitude, sampling);
    case PolicyOp::kTranslateX:
      return ops.TranslateX(image, static_cast<int>(magnitude), sampling);
    case PolicyOp::kTranslateY:
      return ops.TranslateY(image, static_cast<int>(magnitude), sampling);
    case PolicyOp::kRotate:
      return ops.Rotate(image, magnitude, sampling);
    case PolicyOp::kBrightness:
      return ops.Brightness(image, 1 + magnitude);
    case PolicyOp::kColor:
      return ops.Saturation(image, 1 + magnitude);
    case PolicyOp::kContrast:
      return ops.Contrast(image, 1 + magnitude);
    case PolicyOp::kSharpness:
      return ops.Sharpness(image, 1 + magnitude);
    case PolicyOp::kPosterize:
      return ops.Posterize(image, static_cast<int>(magnitude));
    case PolicyOp::kSolarize:
      return ops.Solarize(image, 255 * magnitude);
    case PolicyOp::kAutoContrast:
      return ops.AutoContrast(image);
    case PolicyOp::kEqualize:
      return ops.Equalize(image);
  }
}

void ApplyPolicy(ImageOps& ops, const PolicyOptions& options, Random random, RgbImage image) {
  if (options.kind == Policy::kNone) return;
  const bool rand = options.kind == Policy::kRandAugment;
  for (int i = 0; i < (rand ? options.ops : 1); ++i) {
    const auto op = static_cast<PolicyOp>(random.Below(kPolicyOps));
    const int bin = rand ? options.magnitude : static_cast<int>(random.Below(kPolicyBins));
    double magnitude = PolicyMagnitude(options.kind, op, bin, image.width, image.height);
    if (IsSigned(op) && random.Coin()) magnitude = -magnitude;
    ApplyPolicyOp(ops, op, magnitude, options.sampling, image);
  }
}

}  // namespace imgd::data
