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

}  // namespace
}  // namespace imgd
