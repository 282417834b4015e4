#include "trainer/loop/guard.h"

#include <gtest/gtest.h>

#include <cmath>

namespace imgd::trainer {
namespace {

TEST(HasDiverged, ComparesWithTheRunningMean) {
  GuardState state;
  EXPECT_FALSE(HasDiverged(6.9, 1.5, state));  // nothing to compare with
  EXPECT_EQ(state.mean_loss, 6.9);
  EXPECT_FALSE(HasDiverged(5.9, 1.5, state));
  EXPECT_DOUBLE_EQ(state.mean_loss, 0.9 * 6.9 + 0.1 * 5.9);
  const double mean = state.mean_loss;
  EXPECT_TRUE(HasDiverged(1.51 * mean, 1.5, state));
  EXPECT_EQ(state.mean_loss, mean);  // what has gone wrong is no measure of what is right
  EXPECT_FALSE(HasDiverged(1.49 * mean, 1.5, state));
}

TEST(HasDiverged, WithoutAFactorOnlyByWhatIsNoNumber) {
  GuardState state;
  EXPECT_FALSE(HasDiverged(1, 0, state));
  EXPECT_FALSE(HasDiverged(1000, 0, state));
  EXPECT_TRUE(HasDiverged(std::nan(""), 0, state));
  EXPECT_TRUE(HasDiverged(INFINITY, 0, state));
}

ValidationResult Pass(uint64_t step, double top1, double loss = 1) {
  return {.step = step, .images = 10, .loss = loss, .top1 = top1, .top5 = 1};
}

TEST(EarlyStop, EndsAfterSoManyPassesWithoutABetterOne) {
  const JobSpec::EarlyStop settings{.patience = 2, .metric = "top1", .min_delta = 0.01};
  RunState state;
  EXPECT_FALSE(EnoughIsEnough(settings, state));  // none yet
  const auto after = [&](uint64_t step, double top1) {
    state.validation = Pass(step, top1);
    return EnoughIsEnough(settings, state);
  };
  EXPECT_FALSE(after(10, 0));  // the first is the best so far, whatever it is
  EXPECT_FALSE(after(20, 0.5));
  EXPECT_FALSE(after(30, 0.505));  // no better by more than min_delta
  EXPECT_FALSE(after(30, 0.505));  // the same pass, after a restart
  EXPECT_FALSE(after(40, 0.52));
  EXPECT_EQ(state.best.step, 40U);
  EXPECT_FALSE(after(50, 0.4));
  EXPECT_TRUE(after(60, 0.525));  // no better than 0.52 by 0.01
  EXPECT_EQ(state.best.value, 0.52);
}

TEST(EarlyStop, ALossIsBetterWhenItIsLess) {
  const JobSpec::EarlyStop settings{.patience = 1, .metric = "loss"};
  RunState state;
  state.validation = Pass(10, 0.1, std::nan(""));
  EXPECT_TRUE(EnoughIsEnough(settings, state));  // never better than none
  state = {};
  state.validation = Pass(10, 0.1, 2);
  EXPECT_FALSE(EnoughIsEnough(settings, state));
  state.validation = Pass(20, 0.1, 1.5);
  EXPECT_FALSE(EnoughIsEnough(settings, state));
  state.validation = Pass(30, 0.9, 1.5);
  EXPECT_TRUE(EnoughIsEnough(settings, state));
}

TEST(EarlyStop, SaysWhy) {
  const JobSpec::EarlyStop settings{.patience = 3, .metric = "loss"};
  EXPECT_EQ(WhyEnough(settings, {.value = 0.76123, .step = 500, .passes_since = 3}),
            "the last 3 validation passes were no better than that of step 500, whose loss was 0.7612");
  EXPECT_EQ(WhyEnough({.patience = 1, .metric = "top1"}, {.value = 0.5, .step = 7, .passes_since = 1}),
            "the last validation pass was no better than that of step 7, whose top1 was 0.5");
  EXPECT_EQ(WhyEnough(settings, {.passes_since = 3}),
            "none of 3 validation passes had a loss that is a finite number");
}

TEST(EarlyStop, IsOffWithoutPatience) {
  RunState state;
  for (uint64_t step = 1; step < 20; ++step) {
    state.validation = Pass(step, 0);
    EXPECT_FALSE(EnoughIsEnough({}, state));
  }
}

}  // namespace
}  // namespace imgd::trainer
