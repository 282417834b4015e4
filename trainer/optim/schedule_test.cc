#include "trainer/optim/schedule.h"

#include <gtest/gtest.h>

namespace imgd::trainer {
namespace {

TEST(Schedule, RisesLinearlyThenFallsAsHalfACosine) {
  const Schedule schedule{.base = 1.0, .warmup_steps = 3, .total_steps = 11};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 0), 0.25);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 2), 0.75);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 3), 1.0);
  EXPECT_NEAR(LearningRate(schedule, 5), 0.853553390593, 1e-12);  // (1 + cos(pi / 4)) / 2
  EXPECT_NEAR(LearningRate(schedule, 7), 0.5, 1e-12);
  EXPECT_GT(LearningRate(schedule, 10), 0);
}

TEST(Schedule, NoStepOfARunIsWastedAndNoneComesAfter) {
  const Schedule schedule{.base = 0.4, .warmup_steps = 0, .total_steps = 4};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 0), 0.4);
  for (uint64_t step = 0; step < 4; ++step) EXPECT_GT(LearningRate(schedule, step), 0);
  EXPECT_EQ(LearningRate(schedule, 4), 0);
}

}  // namespace
}  // namespace imgd::trainer
