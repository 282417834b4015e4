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

/// Reports `times` stretches of so many seconds, each of one step; the time that 100 steps would take then.
double Steps(Meter& meter, Instant& now, int times, int seconds_each) {
  double eta = 0;
  for (int i = 0; i < times; ++i) {
    meter.AddStep(1);
    eta = meter.Report(now += seconds(seconds_each), 1, 100).eta_seconds;
  }
  return eta;
}

TEST(Meter, TimeLeftFollowsAChangeOfSpeedOverAboutAMinute) {
  Instant now{};
  Meter meter(now);
  EXPECT_DOUBLE_EQ(Steps(meter, now, 60, 1), 100);
  EXPECT_NEAR(Steps(meter, now, 30, 2), 150, 5);
}

TEST(Meter, ASlowStartCountsForTheTimeLeftOnlyWhileNothingElseIsKnown) {
  Instant now{};
  Meter meter(now);
  EXPECT_DOUBLE_EQ(Steps(meter, now, 1, 50), 5000);
  EXPECT_DOUBLE_EQ(Steps(meter, now, 1, 1), 100);
}

TEST(Meter, ValidationsAreAPartOfTheTimeLeft) {
  Instant now{};
  Meter meter(now);
  Steps(meter, now, 2, 1);
  meter.AddStep(1);
  EXPECT_DOUBLE_EQ(meter.Report(now += seconds(1), 1, 100, 4).eta_seconds, 100) << "none was seen yet";
  meter.NoteValidation(seconds(7));
  meter.AddStep(1);
  EXPECT_DOUBLE_EQ(meter.Report(now += seconds(1), 1, 100, 4).eta_seconds, 100 + 4 * 7);
  EXPECT_DOUBLE_EQ(meter.Report(now += seconds(1), 0, 0, 1).eta_seconds, 7) << "the last one is to come";
  meter.GoOn(now += seconds(50));
  EXPECT_DOUBLE_EQ(Steps(meter, now, 1, 1), 100);
}

TEST(Meter, ValidationsComeAfterWholeEpochsAndAtTheEnd) {
  JobSpec spec;
  spec.train.epochs = 10;
  spec.train.global_batch = 10;
  const Phases phases(spec, 300);  // 30 steps an epoch
  const auto left = [&](uint64_t step, uint64_t total, int every) {
    return ValidationsLeft(phases, step, total, every);
  };
  EXPECT_EQ(left(0, 300, 1), 11U) << "where it goes on, one may be due";
  EXPECT_EQ(left(1, 300, 1), 10U);
  EXPECT_EQ(left(29, 100, 1), 4U) << "after 30, 60, 90 and 100 steps";
  EXPECT_EQ(left(30, 100, 1), 4U) << "it comes now";
  EXPECT_EQ(left(31, 100, 1), 3U);
  EXPECT_EQ(left(99, 100, 1), 1U);
  EXPECT_EQ(left(100, 100, 1), 1U);
  EXPECT_EQ(left(1, 300, 4), 3U) << "after 4, 8 and 10 epochs";
  EXPECT_EQ(left(1, 300, 50), 1U);
}

}  // namespace
}  // namespace imgd::trainer
