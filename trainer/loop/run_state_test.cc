#include "trainer/loop/run_state.h"

#include <gmock/gmock.h>

#include <cmath>

namespace imgd::trainer {
namespace {

using testing::ElementsAre;

TEST(RunState, SurvivesTheTripThroughItsFile) {
  RunState state;
  state.step = 120;
  state.epoch = 2.4;
  state.seed = 18'446'744'073'709'551'615U;
  state.world_size = 6;
  state.generation = 4;
  state.global_batch = 96;
  state.train_images = 1'281'167;
  state.model = "resnet18";
  state.job_digest = "0123abcd";
  state.last_loss = 1.25;
  state.planned = true;
  state.class_names = {"cat", "dog"};
  state.loss_scale = 32768;
  state.loss_scale_streak = 17;
  state.optimizer = "lars";
  state.resizes = {{0, 2}, {7, 8}};
  state.guard = {
      .mean_loss = 1.5, .times_used = 2, .good_step = 90, .given_up = {{40, 60}}, .sums = {3.25, 1, 8, 0}};
  state.best = {.value = 0.7, .step = 80, .last_step = 100, .passes_since = 1};
  state.validation = {.step = 100, .images = 50, .loss = 0.5, .top1 = 0.75, .top5 = 1};
  const auto back = RunStateFromJson(ToJson(state));
  ASSERT_TRUE(back.has_value()) << back.error().ToString();
  EXPECT_EQ(back->step, 120U);
  EXPECT_EQ(back->epoch, 2.4);
  EXPECT_EQ(back->seed, state.seed);
  EXPECT_EQ(back->world_size, 6);
  EXPECT_EQ(back->generation, 4U);
  EXPECT_EQ(back->global_batch, 96);
  EXPECT_EQ(back->train_images, 1'281'167U);
  EXPECT_EQ(back->model, "resnet18");
  EXPECT_EQ(back->job_digest, "0123abcd");
  EXPECT_EQ(back->last_loss, 1.25);
  EXPECT_TRUE(back->planned);
  EXPECT_THAT(back->class_names, ElementsAre("cat", "dog"));
  EXPECT_EQ(back->loss_scale, 32768);
  EXPECT_EQ(back->loss_scale_streak, 17);
  EXPECT_EQ(back->optimizer, "lars");
  EXPECT_EQ(back->resizes, state.resizes);
  EXPECT_EQ(back->guard.mean_loss, 1.5);
  EXPECT_EQ(back->guard.times_used, 2);
  EXPECT_EQ(back->guard.good_step, 90U);
  EXPECT_EQ(back->guard.given_up, state.guard.given_up);
  EXPECT_EQ(back->guard.sums, state.guard.sums);
  EXPECT_EQ(back->best.value, 0.7);
  EXPECT_EQ(back->best.step, 80U);
  EXPECT_EQ(back->best.last_step, 100U);
  EXPECT_EQ(back->best.passes_since, 1);
  EXPECT_EQ(back->validation.step, 100U);
  EXPECT_EQ(back->validation.images, 50U);
  EXPECT_EQ(back->validation.loss, 0.5);
  EXPECT_EQ(back->validation.top1, 0.75);
  EXPECT_EQ(back->validation.top5, 1);
}

TEST(GuardState, CheckpointsOfAWayThatWasGivenUpAreNeverGood) {
  GuardState guard{.good_step = 200};
  EXPECT_TRUE(IsGood(guard, 150));
  EXPECT_FALSE(IsGood(guard, 200)) << "nobody has looked since";
  guard.given_up = {{150, 250}};
  EXPECT_TRUE(IsGood(guard, 250)) << "a copy of the one that it went back to";
  guard.good_step = 300;
  EXPECT_TRUE(IsGood(guard, 150));
  EXPECT_FALSE(IsGood(guard, 200)) << "a later look was at other weights";
  EXPECT_TRUE(IsGood(guard, 260));
  guard.given_up.emplace_back(250, 400);
  EXPECT_FALSE(IsGood(guard, 260));
  EXPECT_TRUE(IsGood(guard, 250));
}

/// 10 images, of which 4 ranks take 4 a step: 3 steps an epoch.
JobSpec LinearScaling() {
  JobSpec spec;
  spec.train.epochs = 10;
  spec.train.global_batch = 4;
  spec.elastic = {.rule = "linear_scaling", .ranks = 4};
  return spec;
}

TEST(FollowRanks, AFreshRunIsOfTheRanksThatItHas) {
  RunState state;
  FollowRanks(LinearScaling(), 10, 4, state);
  EXPECT_THAT(state.resizes, ElementsAre()) << "as the file says";
  FollowRanks(LinearScaling(), 10, 8, state);
  EXPECT_THAT(state.resizes, ElementsAre(Resize{0, 8}));
}

TEST(FollowRanks, AnEpochThatHasBegunIsFinishedAsItWas) {
  RunState state{.step = 6};
  FollowRanks(LinearScaling(), 10, 8, state);
  EXPECT_THAT(state.resizes, ElementsAre(Resize{2, 8})) << "the third epoch begins with this step";
  state.step = 7;  // in the third epoch, of 2 steps
  FollowRanks(LinearScaling(), 10, 2, state);
  EXPECT_THAT(state.resizes, ElementsAre(Resize{2, 8}, Resize{3, 2}));
  FollowRanks(LinearScaling(), 10, 1, state);
  EXPECT_THAT(state.resizes, ElementsAre(Resize{2, 8}, Resize{3, 1})) << "what has not begun never was";
  FollowRanks(LinearScaling(), 10, 8, state);
  EXPECT_THAT(state.resizes, ElementsAre(Resize{2, 8}));
}

TEST(RunState, KnowsOfNumbersThatAreNone) {
  RunState state;
  state.last_loss = std::nan("");
  state.validation.loss = std::nan("");
  const auto back = RunStateFromJson(ToJson(state));
  ASSERT_TRUE(back.has_value()) << back.error().ToString();
  EXPECT_TRUE(std::isnan(back->last_loss));
  EXPECT_TRUE(std::isnan(back->validation.loss));
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
