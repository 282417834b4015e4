#include "trainer/loop/session.h"

#include <gtest/gtest.h>

namespace imgd::trainer {
namespace {

struct NoReporter final : report::Reporter {
  void On(const report::Started&) override {}
  void On(const report::StepFigures&) override {}
  void On(const report::EpochFigures&) override {}
  void On(const report::CheckpointFigures&) override {}
  void On(const report::Finished&) override {}
  void On(const report::Failed&) override {}
  void On(const report::BadImage&) override {}
  void Note(const std::string&) override {}
};

/// A session of a set of 100 images, as far as its loaders' options need it.
struct PlannedSession {
  explicit PlannedSession(JobSpec job) : spec(std::move(job)) {
    session.phases = Phases(spec, 100);
    session.total_steps = session.phases.total_steps();
  }
  JobSpec spec;
  Environment env;
  NoReporter reporter;
  Commands commands;
  Whereabouts whereabouts;
  Session session{spec, env, reporter, commands, whereabouts};
};

TEST(Session, LoadersGetTheSizeTheCropsAndTheBatchOfTheirPhase) {
  JobSpec spec;
  spec.train.epochs = 3;
  spec.data.image_size = 96;
  spec.phases = {{.until = 1, .image_size = 32, .global_batch = 20, .min_scale = 0.3},
                 {.until = 3, .image_size = 48, .global_batch = 10, .min_scale = 0.7}};
  PlannedSession planned(spec);
  const auto& phases = planned.session.phases.all();
  ASSERT_EQ(phases.size(), 2U);

  const auto small = planned.session.TrainOptions(phases[0]);
  EXPECT_EQ(small.crop_size, 32);
  EXPECT_EQ(small.min_scale, 0.3);
  EXPECT_EQ(small.global_batch, 20);
  EXPECT_EQ(small.first_epoch, 0U);
  EXPECT_EQ(small.first_step, 0U);
  EXPECT_EQ(small.end_step, 5U);

  const auto large = planned.session.TrainOptions(phases[1]);
  EXPECT_EQ(large.crop_size, 48);
  EXPECT_EQ(large.min_scale, 0.7);
  EXPECT_EQ(large.global_batch, 10);
  EXPECT_EQ(large.first_epoch, 1U);
  EXPECT_EQ(large.first_step, 5U);
  EXPECT_EQ(large.end_step, 25U);
}

TEST(Session, BeginsWithTheLossScaleOfItsState) {
  JobSpec spec;
  spec.train.precision = "fp16";
  PlannedSession planned(spec);
  planned.session.state.loss_scale = 512;
  planned.session.state.loss_scale_streak = 7;
  BeginLossScale(planned.session);
  EXPECT_EQ(planned.session.loss_scale.scale(), 512);
  EXPECT_EQ(planned.session.loss_scale.streak(), 7);
}

}  // namespace
}  // namespace imgd::trainer
