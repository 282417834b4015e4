#include "trainer/data/crop.h"

#include <gmock/gmock.h>

#include <cmath>

namespace imgd::data {
namespace {

TEST(RandomResizedCrop, RoundsSizesHalfToEven) {
  // 100 x 100, a quarter of the area, square.
  EXPECT_EQ(TrySize(100, 100, 0.25, 0.0), (Crop{.width = 50, .height = 50}));
  // sqrt(0.0625 * 10 * 10) = 2.5 and sqrt(0.1225 * 100) = 3.5: Python rounds them to 2 and 4.
  EXPECT_EQ(TrySize(10, 10, 0.0625, 0.0), (Crop{.width = 2, .height = 2}));
  EXPECT_EQ(TrySize(10, 10, 0.1225, 0.0), (Crop{.width = 4, .height = 4}));
  // Python: round(sqrt(500*375*0.3*4/3)), round(sqrt(500*375*0.3/(4/3)))
  EXPECT_EQ(TrySize(500, 375, 0.3, std::log(4.0 / 3.0)), (Crop{.width = 274, .height = 205}));
}

TEST(RandomResizedCrop, ACropThatIsLargerThanTheImageIsNoCrop) {
  EXPECT_FALSE(TrySize(100, 100, 1.0, std::log(4.0 / 3.0)).has_value());
  EXPECT_FALSE(TrySize(1000, 100, 0.9, 0.0).has_value());
  EXPECT_FALSE(TrySize(1, 1, 0.1, 0.0).has_value()) << "rounds to nothing";
  EXPECT_TRUE(TrySize(100, 100, 1.0, 0.0).has_value());
}

TEST(RandomResizedCrop, FallsBackToTheLargestCentredCrop) {
  EXPECT_EQ(FallbackCrop(1000, 100), (Crop{.left = 433, .top = 0, .width = 133, .height = 100}));
  EXPECT_EQ(FallbackCrop(100, 1000), (Crop{.left = 0, .top = 433, .width = 100, .height = 133}));
  EXPECT_EQ(FallbackCrop(110, 100), (Crop{.left = 0, .top = 0, .width = 110, .height = 100}));
  EXPECT_EQ(FallbackCrop(3, 65535), (Crop{.left = 0, .top = 32765, .width = 3, .height = 4}));
}

TEST(RandomResizedCrop, StaysInsideAndKeepsToItsLimits) {
  bool touched_left = false;
  bool touched_right = false;
  double share_sum = 0;
  for (uint32_t i = 0; i < 2000; ++i) {
    Random random(3, 0, i, Purpose::kCrop);
    const Crop crop = RandomCrop(160, 120, 0.25, random);
    ASSERT_GE(crop.left, 0);
    ASSERT_GE(crop.top, 0);
    ASSERT_LE(crop.left + crop.width, 160);
    ASSERT_LE(crop.top + crop.height, 120);
    const double share = crop.width * crop.height / (160.0 * 120.0);
    ASSERT_GE(share, 0.24);
    const double ratio = static_cast<double>(crop.width) / crop.height;
    ASSERT_GT(ratio, 0.73);
    ASSERT_LT(ratio, 1.37);
    touched_left |= crop.left == 0;
    touched_right |= crop.left + crop.width == 160;
    share_sum += share;
  }
  EXPECT_TRUE(touched_left);
  EXPECT_TRUE(touched_right);
  // Large crops often do not fit and are drawn again, so the mean is below 0.625: torchvision's code gives
  // 0.524.
  EXPECT_NEAR(share_sum / 2000, 0.524, 0.015);
}

TEST(RandomResizedCrop, AVeryLongImageGetsTheFallback) {
  Random random(3, 0, 0, Purpose::kCrop);
  EXPECT_EQ(RandomCrop(10000, 4, 0.5, random), FallbackCrop(10000, 4));
}

TEST(CenterCrop, TruncatesTheLongSideAndRoundsOffsetsHalfToEven) {
  const auto landscape = PlanCenterCrop(500, 375, 256, 224);
  EXPECT_EQ(landscape.resized_width, 341);  // 341.33
  EXPECT_EQ(landscape.resized_height, 256);
  EXPECT_EQ(landscape.crop, (Crop{.left = 58, .top = 16, .width = 224, .height = 224}));  // round(58.5) = 58
  const auto portrait = PlanCenterCrop(375, 499, 256, 224);
  EXPECT_EQ(portrait.resized_width, 256);
  EXPECT_EQ(portrait.resized_height, 340);  // 340.65
  EXPECT_EQ(portrait.crop.top, 58);
  const auto odd = PlanCenterCrop(256, 259, 256, 224);
  EXPECT_EQ(odd.crop.top, 18);  // round(17.5) = 18
}

}  // namespace
}  // namespace imgd::data
