#include "trainer/data/augment.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "trainer/data/mix.h"

namespace imgd::data {
namespace {

using testing::Each;
using testing::ElementsAre;

RgbImage ViewOf(std::vector<uint8_t>& pixels, int width, int height) {
  return {pixels.data(), width, height};
}

// Ten million draws would show more; these would show a wrong formula.
TEST(Mix, MixupsShareFollowsTheBetaDistribution) {
  for (const double alpha : {0.2, 1.0, 4.0}) {
    double sum = 0;
    double squares = 0;
    constexpr int kDraws = 20'000;
    for (uint32_t i = 0; i < kDraws; ++i) {
      const Mix mix = MixOf({.mixup = alpha}, 1, i / 100, i % 100, 32, 32);
      EXPECT_EQ(mix.own, mix.inside);
      EXPECT_EQ(mix.box, (Crop{0, 0, 32, 32}));
      sum += mix.own;
      squares += (mix.own - 0.5) * (mix.own - 0.5);
    }
    EXPECT_NEAR(sum / kDraws, 0.5, 0.012) << alpha;
    EXPECT_NEAR(squares / kDraws, 1 / (4 * (2 * alpha + 1)), 0.004) << alpha;
  }
}

TEST(Mix, CutmixPastesABoxAndCountsWhatIsLeft) {
  double area = 0;
  for (uint32_t i = 0; i < 2000; ++i) {
    const Mix mix = MixOf({.cutmix = 1}, 9, 4, i, 40, 20);
    EXPECT_EQ(mix.inside, 0);
    EXPECT_GE(mix.box.left, 0);
    EXPECT_LE(mix.box.left + mix.box.width, 40);
    EXPECT_LE(mix.box.top + mix.box.height, 20);
    EXPECT_NEAR(mix.own, 1 - mix.box.width * mix.box.height / 800.0, 1e-12);
    area += 1 - mix.own;
  }
  // Half of the image on average, less what lies beyond the edges.
  EXPECT_NEAR(area / 2000, 0.3, 0.06);
}

TEST(Mix, IsAFunctionOfSeedStepAndPositionAndTakesOneOfBoth) {
  const MixOptions both{.mixup = 0.2, .cutmix = 1};
  int cut = 0;
  for (uint32_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(MixOf(both, 1, 2, i, 8, 8), MixOf(both, 1, 2, i, 8, 8));
    cut += MixOf(both, 1, 2, i, 8, 8).inside == 0 ? 1 : 0;
  }
  EXPECT_NEAR(cut, 500, 60);
  EXPECT_NE(MixOf(both, 1, 2, 3, 8, 8), MixOf(both, 1, 3, 2, 8, 8));
  EXPECT_EQ(MixOf({}, 1, 2, 3, 8, 8), Mix{});
}

TEST(ErasedBox, LiesWithinTheImageWithTheShareAskedFor) {
  int erased = 0;
  for (uint32_t i = 0; i < 4000; ++i) {
    Random random(1, 0, i, Purpose::kErase);
    const auto box = ErasedBox(0.25, 50, 40, random);
    if (!box) continue;
    ++erased;
    EXPECT_LE(box->left + box->width, 50);
    EXPECT_LE(box->top + box->height, 40);
    const double share = box->width * box->height / 2000.0;
    EXPECT_GT(share, 0.015);
    EXPECT_LT(share, 0.35);
  }
  EXPECT_NEAR(erased, 1000, 100);
  Random random(1, 0, 0, Purpose::kErase);
  EXPECT_FALSE(ErasedBox(1, 1, 1, random).has_value()) << "nothing fits";
}

TEST(ImageOps, MovesRowsAndColumnsAsTold) {
  ImageOps ops;
  std::vector<uint8_t> pixels(4 * 3 * 3);
  for (int i = 0; i < 12; ++i)
    std::fill_n(&pixels[static_cast<size_t>(i) * 3], 3, static_cast<uint8_t>(i + 1));
  const auto red = [&] {
    std::vector<int> out;
    for (size_t i = 0; i < pixels.size(); i += 3) out.push_back(pixels[i]);
    return out;
  };
  ops.TranslateX(ViewOf(pixels, 4, 3), 1, ImageOps::Sampling::kNearest);
  EXPECT_THAT(red(), ElementsAre(0, 1, 2, 3, 0, 5, 6, 7, 0, 9, 10, 11));
  ops.TranslateY(ViewOf(pixels, 4, 3), -1, ImageOps::Sampling::kBilinear);
  EXPECT_THAT(red(), ElementsAre(0, 5, 6, 7, 0, 9, 10, 11, 0, 0, 0, 0));
  ops.ShearX(ViewOf(pixels, 4, 3), 2, ImageOps::Sampling::kNearest);
  EXPECT_THAT(red(), ElementsAre(5, 6, 7, 0, 11, 0, 0, 0, 0, 0, 0, 0));
  ops.Rotate(ViewOf(pixels, 4, 3), 180, ImageOps::Sampling::kNearest);
  EXPECT_THAT(red(), ElementsAre(0, 0, 0, 0, 0, 0, 0, 11, 0, 7, 6, 5));
}

TEST(ImageOps, BearAnySizeAndAnyStrength) {
  ImageOps ops;
  for (const auto& [width, height] : std::vector<std::pair<int, int>>{{1, 1}, {2, 3}, {5, 1}, {17, 9}}) {
    std::vector<uint8_t> pixels(static_cast<size_t>(width * height * 3));
    std::iota(pixels.begin(), pixels.end(), uint8_t{1});
    for (int op = 0; op < kPolicyOps; ++op) {
      for (const int bin : {0, 30}) {
        for (const auto policy : {Policy::kRandAugment, Policy::kTrivialAugment}) {
          const auto o = static_cast<PolicyOp>(op);
          ApplyPolicyOp(ops, o, PolicyMagnitude(policy, o, bin, width, height), ImageOps::Sampling::kBilinear,
                        ViewOf(pixels, width, height));
        }
      }
    }
  }
}

TEST(Policy, IsDecidedByTheRandomStreamAlone) {
  std::vector<uint8_t> picture(32 * 32 * 3);
  for (size_t i = 0; i < picture.size(); ++i) picture[i] = static_cast<uint8_t>(i * i / 7);
  const auto made = [&](uint32_t id, PolicyOptions options) {
    ImageOps ops;
    auto pixels = picture;
    ApplyPolicy(ops, options, {1, 0, id, Purpose::kAugment}, ViewOf(pixels, 32, 32));
    return pixels;
  };
  int changed = 0;
  for (uint32_t id = 0; id < 50; ++id) {
    const PolicyOptions options{.kind = Policy::kRandAugment};
    EXPECT_EQ(made(id, options), made(id, options));
    changed += made(id, options) != picture ? 1 : 0;
  }
  EXPECT_GT(changed, 40);
  EXPECT_EQ(made(1, {}), picture);
}

}  // namespace
}  // namespace imgd::data
