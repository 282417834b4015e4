#pragma once

#include <cstdint>
#include <string_view>

#include "trainer/data/image_ops.h"
#include "trainer/data/random.h"

namespace imgd::data {

enum class Policy { kNone, kRandAugment, kTrivialAugment };

struct PolicyOptions {
  Policy kind = Policy::kNone;
  int ops = 2;        ///< RandAugment: operations one after the other
  int magnitude = 9;  ///< RandAugment: 0 to 30
  ImageOps::Sampling sampling = ImageOps::Sampling::kNearest;
};

/// The operations in torchvision's order and spelling.
enum class PolicyOp {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
};
inline constexpr int kPolicyOps = 14;
inline constexpr int kPolicyBins = 31;

std::string_view PolicyOpName(PolicyOp op);

/// Whether an operation's magnitude is negated half of the time.
bool IsSigned(PolicyOp op);

/// Strength of `op` in bin 0 to 30 of `policy`'s space for an image of this size (torchvision's
/// _AUGMENTATION_SPACE); 0 where it has none. Posterize: bits; Solarize: threshold as a share of 255.
double PolicyMagnitude(Policy policy, PolicyOp op, int bin, int width, int height);

/// Does one operation to the image, in place.
void ApplyPolicyOp(ImageOps& ops, PolicyOp op, double magnitude, ImageOps::Sampling sampling, RgbImage image);

/// RandAugment (`ops` operations of one strength, each drawn from all) or TrivialAugmentWide (one operation,
/// its strength drawn from all), as torchvision's v2 transforms; `random` alone decides.
void ApplyPolicy(ImageOps& ops, const PolicyOptions& options, Random random, RgbImage image);

}  // namespace imgd::data
