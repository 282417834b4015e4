#include "common/schedule.h"

#include <gtest/gtest.h>

namespace imgd {
namespace {

/// Of a run of `epochs` epochs with `steps` steps each.
Schedule Make(JobSpec spec, int epochs, uint64_t steps) {
  spec.train.epochs = epochs;
  spec.train.global_batch = 1;
  return {spec, Phases(spec, steps)};
}

TEST(Schedule, RisesLinearlyThenFallsAsHalfACosine) {
  JobSpec spec;
  spec.optimizer.lr = 1.0;
  spec.schedule.warmup_epochs = 3;
  const Schedule schedule = Make(spec, 11, 1);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(0), 0.25);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(1), 0.5);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(2), 0.75);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(3), 1.0);
  EXPECT_NEAR(schedule.LearningRate(5), 0.853553390593, 1e-12);  // (1 + cos(pi / 4)) / 2
  EXPECT_NEAR(schedule.LearningRate(7), 0.5, 1e-12);
  EXPECT_GT(schedule.LearningRate(10), 0);
  EXPECT_EQ(schedule.LearningRate(11), 0);
}

TEST(Schedule, WithoutWarmUpTheFirstStepHasTheFullRate) {
  JobSpec spec;
  spec.optimizer.lr = 0.4;
  spec.schedule.warmup_epochs = 0;
  EXPECT_DOUBLE_EQ(Make(spec, 10, 1).LearningRate(0), 0.4);
}

TEST(Schedule, AWarmUpMayBeginAtAShareOfTheRate) {
  JobSpec spec;
  spec.optimizer.lr = 3.2;
  spec.schedule.warmup_epochs = 5;
  spec.schedule.warmup_start = 0.1 / 3.2;
  const Schedule schedule = Make(spec, 90, 10);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(0), 0.1);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(25), 0.1 + 3.1 / 2);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(50), 3.2);
}

TEST(Schedule, StepsFallAtTheirMilestones) {
  JobSpec spec;
  spec.optimizer.lr = 1;
  spec.schedule = {.kind = "step", .warmup_epochs = 0, .milestones = {30, 60, 80}, .gamma = 0.1};
  const Schedule schedule = Make(spec, 90, 10);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(299), 1);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(300), 0.1);
  EXPECT_NEAR(schedule.LearningRate(799), 0.01, 1e-15);
  EXPECT_NEAR(schedule.LearningRate(899), 0.001, 1e-15);
}

TEST(Schedule, PolynomialsEndWhereTheyShould) {
  JobSpec spec;
  spec.optimizer.lr = 10;
  spec.schedule = {.kind = "polynomial", .warmup_epochs = 0, .end_lr = 2, .power = 2};
  const Schedule schedule = Make(spec, 10, 10);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(0), 10);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(50), 2 + 8 * 0.25);
  EXPECT_NEAR(schedule.LearningRate(99), 2 + 8 * 0.0001, 1e-12);
}

// torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=101, pct_start=0.31, div_factor=25,
// final_div_factor=1e4), whose turning points lie at steps 0.31 * 101 - 1 and 100; ours at 30 and 100.
TEST(Schedule, OneCycleGoesUpAndDownByHalfCosines) {
  JobSpec spec;
  spec.optimizer.lr = 1;
  spec.schedule = {.kind = "one_cycle", .warmup_epochs = 30, .warmup_start = 0.04, .end_lr = 4e-6};
  const Schedule schedule = Make(spec, 100, 1);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(0), 0.04);
  EXPECT_NEAR(schedule.LearningRate(15), 0.52, 1e-12);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(30), 1);
  EXPECT_NEAR(schedule.LearningRate(65), 0.5 + 2e-6, 1e-12);
  EXPECT_LT(schedule.LearningRate(99), 0.001);
}

TEST(Schedule, PhasesMayHaveRatesOfTheirOwn) {
  JobSpec spec;
  spec.phases = {{.until = 2, .global_batch = 10, .lr = 1, .lr_end = 2},
                 {.until = 3, .global_batch = 20, .lr = 2},
                 {.until = 5, .global_batch = 10, .lr = 1, .lr_end = 0}};
  const Schedule schedule(spec, Phases(spec, 100));  // 10, 5 and 10 steps an epoch
  EXPECT_DOUBLE_EQ(schedule.LearningRate(0), 1);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(5), 1.25);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(20), 2);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(24), 2);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(25), 1);
  EXPECT_DOUBLE_EQ(schedule.LearningRate(35), 0.5);
  EXPECT_EQ(schedule.LearningRate(45), 0);
}

}  // namespace
}  // namespace imgd
