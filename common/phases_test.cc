#include "common/phases.h"

#include <gtest/gtest.h>

namespace imgd {
namespace {

JobSpec ThreePhases() {
  JobSpec spec;
  spec.phases = {{.until = 2, .image_size = 128, .global_batch = 50},
                 {.until = 3, .image_size = 224, .global_batch = 25},
                 {.until = 5, .image_size = 288, .global_batch = 40}};
  return spec;
}

TEST(Phases, CountStepsOverBatchesOfSeveralSizes) {
  const Phases phases(ThreePhases(), 101);  // 3, 5 and 3 steps an epoch
  EXPECT_EQ(phases.total_steps(), 2 * 3 + 5 + 2 * 3U);
  EXPECT_EQ(phases.At(5).image_size, 128);
  EXPECT_EQ(phases.At(6).image_size, 224);
  EXPECT_EQ(phases.At(6).first_epoch, 2U);
  EXPECT_EQ(phases.At(11).first_step, 11U);
  EXPECT_EQ(phases.At(99).image_size, 288) << "the last one goes on";
}

TEST(Phases, TurnStepsIntoEpochsAndBack) {
  const Phases phases(ThreePhases(), 101);
  EXPECT_DOUBLE_EQ(phases.Epochs(4), 4.0 / 3);
  EXPECT_DOUBLE_EQ(phases.Epochs(6), 2);
  EXPECT_DOUBLE_EQ(phases.Epochs(7), 2.2);
  EXPECT_DOUBLE_EQ(phases.Epochs(17), 5) << "the end of the run";
  EXPECT_EQ(phases.WholeEpochs(3), 1U);
  EXPECT_EQ(phases.WholeEpochs(11), 3U);
  EXPECT_EQ(phases.WholeEpochs(17), 5U);
  EXPECT_FALSE(phases.WholeEpochs(10).has_value());
  EXPECT_EQ(phases.Steps(2.4), 8U);
  EXPECT_EQ(phases.Steps(2), 6U);
  EXPECT_EQ(phases.Steps(99), 17U);
}

TEST(Phases, ARunWithoutThemIsOne) {
  JobSpec spec;
  spec.train.epochs = 4;
  spec.train.global_batch = 10;
  const Phases phases(spec, 95);
  EXPECT_EQ(phases.all().size(), 1U);
  EXPECT_EQ(phases.total_steps(), 40U);
  EXPECT_EQ(phases.Steps(0.5), 5U) << "a warm-up may be a fraction of an epoch";
  EXPECT_EQ(phases.Steps(9), 40U) << "but is never longer than the run";
}

JobSpec Elastic(int ranks) {
  JobSpec spec;
  spec.train.epochs = 6;
  spec.train.global_batch = 20;
  spec.elastic = {.rule = "linear_scaling", .ranks = ranks};
  return spec;
}

TEST(Phases, FollowTheRanksFromAnEpochOn) {
  const Phases phases(Elastic(4), 101, {{2, 2}, {5, 8}});  // 6, 11 and 3 steps an epoch
  ASSERT_EQ(phases.all().size(), 3U);
  EXPECT_EQ(phases.total_steps(), 2 * 6 + 3 * 11 + 3U);
  EXPECT_EQ(phases.At(11).global_batch, 20);
  EXPECT_EQ(phases.At(12).global_batch, 10);
  EXPECT_EQ(phases.At(12).ranks, 2);
  EXPECT_EQ(phases.At(45).global_batch, 40);
  EXPECT_EQ(phases.WholeEpochs(23), 3U);
  EXPECT_DOUBLE_EQ(phases.Epochs(46), 5 + 1.0 / 3);
}

TEST(Phases, SayHowFarARunIsThatWasResized) {
  const Phases phases(Elastic(4), 101, {{2, 2}, {5, 8}});
  EXPECT_DOUBLE_EQ(phases.PlannedSteps(11), 11);
  EXPECT_DOUBLE_EQ(phases.PlannedSteps(12), 12);
  EXPECT_DOUBLE_EQ(phases.PlannedSteps(23), 18) << "three epochs of 6 steps";
  EXPECT_DOUBLE_EQ(phases.PlannedSteps(17), 12 + 5 * 6.0 / 11);
  EXPECT_DOUBLE_EQ(phases.PlannedSteps(46), 32);
  EXPECT_DOUBLE_EQ(phases.PlannedSteps(48), 36) << "the end of the run";
}

TEST(Phases, KeepTheirNumberAndTheirBatchThroughAResize) {
  JobSpec spec = ThreePhases();
  spec.elastic = {.rule = "linear_scaling", .ranks = 5};
  const Phases phases(spec, 101, {{0, 10}, {1, 1}});
  ASSERT_EQ(phases.all().size(), 4U);
  EXPECT_EQ(phases.all()[0].number, 0U);
  EXPECT_EQ(phases.all()[0].global_batch, 100);
  EXPECT_EQ(phases.all()[1].number, 0U);
  EXPECT_EQ(phases.all()[1].global_batch, 10);
  EXPECT_EQ(phases.all()[2].number, 1U);
  EXPECT_EQ(phases.all()[2].global_batch, 5);
  EXPECT_EQ(phases.all()[3].first_epoch, 3U);
}

TEST(PartsOfStep, AreNoLargerThanOnTheRanksThatTheFileIsFor) {
  JobSpec spec = Elastic(4);
  spec.train.accumulate = 2;
  const auto parts = [&](int ranks) { return PartsOfStep(spec, Phases(spec, 101).At(0), ranks); };
  EXPECT_EQ(parts(4), 2);
  EXPECT_EQ(parts(1), 8);
  EXPECT_EQ(parts(3), 3) << "20 images in 3 x 3 parts of at most 3, where 4 x 2 have 2 or 3";
  EXPECT_EQ(parts(8), 1);
  EXPECT_EQ(parts(100), 1);
  spec.elastic.rule = "";
  EXPECT_EQ(parts(1), 2);
}

TEST(PartsOfStep, OfAnEpochThatIsFinishedOnOtherRanksAreNoLargerEither) {
  const JobSpec spec = Elastic(4);
  const Phases phases(spec, 101, {{1, 8}});
  EXPECT_EQ(PartsOfStep(spec, phases.At(6), 8), 1);
  EXPECT_EQ(PartsOfStep(spec, phases.At(6), 2), 4) << "40 images in 2 x 4 parts of 5, as 20 on 4 ranks";
}

}  // namespace
}  // namespace imgd
