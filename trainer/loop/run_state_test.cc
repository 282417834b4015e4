#include "trainer/loop/run_state.h"

#include <gmock/gmock.h>

namespace imgd::trainer {
namespace {

using testing::ElementsAre;

TEST(RunState, SurvivesTheTripThroughItsFile) {
  RunState state;
  state.step = 120;
  state.epoch = 2.4;
  state.class_names = {"cat", "dog"};
  state.loss_scale = 32768;
  state.loss_scale_streak = 17;
  state.validation = {.step = 100, .images = 50, .loss = 0.5, .top1 = 0.75, .top5 = 1};
  const auto back = RunStateFromJson(ToJson(state));
  ASSERT_TRUE(back.has_value()) << back.error().ToString();
  EXPECT_EQ(back->step, 120U);
  EXPECT_EQ(back->epoch, 2.4);
  EXPECT_THAT(back->class_names, ElementsAre("cat", "dog"));
  EXPECT_EQ(back->loss_scale, 32768);
  EXPECT_EQ(back->loss_scale_streak, 17);
  EXPECT_EQ(back->validation.step, 100U);
  EXPECT_EQ(back->validation.top1, 0.75);
}

TEST(RunState, RefusesWhatIsNotItsFormat) {
  for (const char* text : {"", "[]", "{}", R"({"format": 2})", R"({"format": 1, "step": "many"})"}) {
    EXPECT_EQ(RunStateFromJson(text).error().code, ErrorCode::kDataLoss) << text;
  }
}

TEST(JobDigest, ChangesWithWhatIsLearntAndNotWithWhereItRuns) {
  JobSpec spec;
  const std::string digest = JobDigest(spec);
  spec.priority = 7;
  spec.resources.nodes = 2;
  spec.data.workers = 9;
  EXPECT_EQ(JobDigest(spec), digest);
  spec.data.decoder = "nvjpeg";
  EXPECT_NE(JobDigest(spec), digest);
  spec.data.decoder = "cpu";
  spec.optimizer.lr = 0.2;
  EXPECT_NE(JobDigest(spec), digest);
}

}  // namespace
}  // namespace imgd::trainer
