#include "trainer/torch.h"
//
#include <gtest/gtest.h>

#include "trainer/input/normalise.h"

namespace imgd::trainer {
namespace {

TEST(Normalise, SubtractsImageNetsMeanAndDividesByItsDeviation) {
  const std::vector<uint8_t> pixels = {0, 128, 255, 255, 0, 1};
  std::vector<float> out(6);
  const Normaliser normalise{JobSpec::Normalisation()};
  normalise(pixels, out);
  EXPECT_NEAR(out[0], (0.0 - 0.485) / 0.229, 1e-5);
  EXPECT_NEAR(out[1], (128.0 / 255 - 0.456) / 0.224, 1e-5);
  EXPECT_NEAR(out[2], (1.0 - 0.406) / 0.225, 1e-5);
  EXPECT_NEAR(out[3], (1.0 - 0.485) / 0.229, 1e-5);
}

TEST(Normalise, TakesTheMeanAndDeviationOfTheJob) {
  const JobSpec::Normalisation by{.mean = {0.5, 0.25, 0}, .std = {0.5, 0.25, 1}};
  const auto pixels = at::randint(0, 256, {1, 2, 2, 3}, at::kByte);
  const auto out = Normaliser(by)(pixels);
  const double blue = pixels[0][1][0][2].item<double>() / 255;
  const double green = pixels[0][1][0][1].item<double>() / 255;
  EXPECT_NEAR(out[0][2][1][0].item<double>(), blue, 1e-5);
  EXPECT_NEAR(out[0][1][1][0].item<double>(), (green - 0.25) / 0.25, 1e-5);
  EXPECT_TRUE(at::equal(PixelsOf(out, by), pixels)) << "and pictures are shown as they were";
}

TEST(Normalise, OnADeviceGivesTheSameAsOnTheCpu) {
  const auto pixels = at::randint(0, 256, {2, 5, 4, 3}, at::kByte);
  auto expected = at::empty({2, 5, 4, 3}, at::kFloat);
  const Normaliser normalise({.mean = {0.5, 0.4, 0.3}, .std = {0.5, 0.25, 0.2}});
  normalise({pixels.const_data_ptr<uint8_t>(), static_cast<size_t>(pixels.numel())},
            {expected.data_ptr<float>(), static_cast<size_t>(expected.numel())});
  const auto out = normalise(pixels);
  EXPECT_TRUE(out.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_EQ(out.sizes(), (std::vector<int64_t>{2, 3, 5, 4}));
  EXPECT_TRUE(at::allclose(out, expected.permute({0, 3, 1, 2}), 1e-5, 1e-5));
}

}  // namespace
}  // namespace imgd::trainer
