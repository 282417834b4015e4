#include "trainer/data/mix.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trainer/data/random.h"

namespace imgd::data {
namespace {

double Normal(Random& random) {
  const double u = 1 - random.Uniform();  // not 0
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * random.Uniform());
}

/// The logarithm of a Gamma(shape, 1) value: small shapes give values that a double cannot hold.
/// Source: Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables", ACM TOMS 2000.
double LogGamma(double shape, Random& random) {
  double log_boost = 0;
  if (shape < 1) {
    log_boost = std::log(1 - random.Uniform()) / shape;
    shape += 1;
  }
  const double d = shape - 1.0 / 3.0;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = Normal(random);
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    const double u = 1 - random.Uniform();
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v) + log_boost;
  }
}

double Beta(double alpha, Random& random) {
  const double a = LogGamma(alpha, random);
  const double b = LogGamma(alpha, random);
  return 1 / (1 + std::exp(b - a));
}

Crop CutBox(double lambda, int width, int height, Random& random) {
  const auto x = static_cast<int>(random.Below(static_cast<uint32_t>(width)));
  const auto y = static_cast<int>(random.Below(static_cast<uint32_t>(height)));
  const double r = 0.5 * std::sqrt(1 - lambda);
  const int half_width = static_cast<int>(r * width);
  const int half_height = static_cast<int>(r * height);
  Crop box{.left = std::max(x - half_width, 0), .top = std::max(y - half_height, 0)};
  box.width = std::min(x + half_width, width) - box.left;
  box.height = std::min(y + half_height, height) - box.top;
  return box;
}

}  // namespace

Mix MixOf(const MixOptions& options, uint64_t seed, uint64_t step, uint32_t position, int width, int height) {
  Mix mix;
  if (!options.on()) return mix;
  Random random(seed, static_cast<uint32_t>(step), position, Purpose::kMix);
  const bool cut = random.Coin() ? options.cutmix > 0 : options.mixup <= 0;
  const double lambda = Beta(cut ? options.cutmix : options.mixup, random);
  if (!cut) {
    mix.own = mix.inside = lambda;
    mix.box = {.width = width, .height = height};
    return mix;
  }
  mix.box = CutBox(lambda, width, height, random);
  mix.inside = 0;
  mix.own = 1 - static_cast<double>(mix.box.width) * mix.box.height / (static_cast<double>(width) * height);
  return mix;
}

}  // namespace imgd::data
