#include "trainer/data/random.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

namespace imgd::data {
namespace {

using testing::ElementsAre;

// Random123's kat_vectors, lines "philox4x32 10".
TEST(Philox, GivesThePublishedVectors) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, {0, 0}), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(Philox4x32({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

std::vector<uint32_t> Draw(Random random, int n) {
  std::vector<uint32_t> words;
  for (int i = 0; i < n; ++i) words.push_back(random.Next32());
  return words;
}

TEST(Random, DependsOnEveryPartOfItsNameAndNothingElse) {
  const auto base = Draw(Random(1, 2, 3, Purpose::kCrop), 9);
  EXPECT_EQ(base, Draw(Random(1, 2, 3, Purpose::kCrop), 9));
  EXPECT_NE(base, Draw(Random(1 + (uint64_t{1} << 32), 2, 3, Purpose::kCrop), 9));
  EXPECT_NE(base, Draw(Random(1, 3, 3, Purpose::kCrop), 9));
  EXPECT_NE(base, Draw(Random(1, 2, 4, Purpose::kCrop), 9));
  EXPECT_NE(base, Draw(Random(1, 2, 3, Purpose::kSynthesis), 9));
}

TEST(Random, UniformNumbersFillTheirRange) {
  Random random(7, 0, 0, Purpose::kCrop);
  double low = 1;
  double high = 0;
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double x = random.Uniform();
    low = std::min(low, x);
    high = std::max(high, x);
    sum += x;
  }
  EXPECT_GE(low, 0.0);
  EXPECT_LT(low, 0.001);
  EXPECT_LT(high, 1.0);
  EXPECT_GT(high, 0.999);
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

TEST(Random, EachIntegerBelowABoundIsEquallyLikely) {
  Random random(7, 0, 1, Purpose::kCrop);
  std::vector<int> counts(6);
  for (int i = 0; i < 60000; ++i) ++counts[random.Below(6)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 400);
  // With the plain remainder of 32 bits, the lower half of this range would be twice as likely.
  int lower = 0;
  for (int i = 0; i < 10000; ++i) lower += random.Below(0xC0000000) < 0x60000000 ? 1 : 0;
  EXPECT_NEAR(lower, 5000, 250);
  EXPECT_EQ(random.Below(1), 0U);
}

}  // namespace
}  // namespace imgd::data
