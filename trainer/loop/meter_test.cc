#include "trainer/loop/meter.h"

#include <gtest/gtest.h>

namespace imgd::trainer {
namespace {

using std::chrono::seconds;

TEST(Meter, CountsOwnAndAllImagesOverTheStretch) {
  const Instant start{};
  Meter meter(start);
  meter.AddStep(32);
  meter.AddStep(32);
  const auto figures = meter.Report(start + seconds(2), 128, 10);
  EXPECT_DOUBLE_EQ(figures.rank_images_per_second, 32);
  EXPECT_DOUBLE_EQ(figures.images_per_second, 64);
  EXPECT_DOUBLE_EQ(figures.eta_seconds, 10);  // a step takes 1 s
}

TEST(Meter, LeavesOutPausesAndStartsAnewAfterAReport) {
  const Instant start{};
  Meter meter(start);
  meter.AddStep(10);
  meter.AddPause(seconds(9));
  EXPECT_DOUBLE_EQ(meter.Report(start + seconds(10), 10, 0).images_per_second, 10);
  meter.AddStep(10);
  EXPECT_DOUBLE_EQ(meter.Report(start + seconds(12), 10, 0).images_per_second, 5);
}

TEST(Meter, TellsWhichShareOfTheTimeWasSpentWaitingForInput) {
  const Instant start{};
  Meter meter(start);
  meter.AddInputWait(seconds(1));
  meter.AddStep(1);
  EXPECT_DOUBLE_EQ(meter.Report(start + seconds(4), 1, 0).input_wait_ratio, 0.25);
}

TEST(Meter, TimeLeftFollowsAChangeOfSpeedOverAboutAMinute) {
  Instant now{};
  Meter meter(now);
  meter.AddStep(1);
  EXPECT_DOUBLE_EQ(meter.Report(now += seconds(1), 1, 100).eta_seconds, 100);
  for (int i = 0; i < 30; ++i) {
    meter.AddStep(1);
    meter.Report(now += seconds(2), 1, 100);
  }
  meter.AddStep(1);
  const double eta = meter.Report(now += seconds(2), 1, 100).eta_seconds;
  EXPECT_GT(eta, 140);
  EXPECT_LT(eta, 200);
}

}  // namespace
}  // namespace imgd::trainer
