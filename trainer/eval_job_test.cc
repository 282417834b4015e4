#include "trainer/eval_job.h"

#include <gmock/gmock.h>

namespace imgd::trainer {
namespace {

using testing::HasSubstr;

const EvalArguments kEval{.weights = "w.pth", .data = "/val", .model = "resnet18"};

EvalArguments With(std::vector<std::string> settings) {
  EvalArguments arguments = kEval;
  arguments.settings = std::move(settings);
  return arguments;
}

TEST(EvalJob, IsTheModelWithItsWeightsAndTheDataAsValidationSet) {
  const auto job = EvalJob(kEval, {});
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->model.name, "resnet18");
  EXPECT_EQ(job->model.init_from, "w.pth");
  EXPECT_EQ(job->data.val, "/val");
  EXPECT_EQ(job->data.normalisation, JobSpec::Normalisation()) << "ImageNet's";
}

TEST(EvalJob, ImagesAreNormalisedAsTheWeightsSayThatTheyWere) {
  const Metadata metadata{
      {"model", "resnet50"}, {"data.mean", "[0.5, 0.4, 0.3]"}, {"data.std", "[1, 1, 0.5]"}};
  const JobSpec::Normalisation theirs{.mean = {0.5, 0.4, 0.3}, .std = {1, 1, 0.5}};
  EXPECT_EQ(EvalJob({.weights = "w", .data = "/val"}, metadata)->data.normalisation, theirs);
  const auto by_hand = EvalJob(With({"data.mean=[0, 0, 0]"}), metadata);
  ASSERT_TRUE(by_hand.has_value());
  EXPECT_EQ(by_hand->data.normalisation.mean, (std::array<double, 3>{0, 0, 0}));
}

TEST(EvalJob, SettingsThatItHasNoUseForAreRefused) {
  EXPECT_EQ(EvalJob(With({"data.val_size=64", "train.global_batch=8"}), {})->data.val_size, 64);
  for (const char* setting :
       {"train.epochs=3", "model.init_from=/x", "data.val=/x", "ema.decay=0.9", "data={}"}) {
    const auto job = EvalJob(With({setting}), {});
    ASSERT_FALSE(job.has_value()) << setting;
    EXPECT_THAT(job.error().front().message, HasSubstr("an evaluation has no use for ")) << setting;
  }
}

TEST(EvalJob, WhatTheWeightsDoNotSayMustBeSaid) {
  EXPECT_THAT(EvalJob({.weights = "w.pth", .data = "/val"}, {}).error().front().message,
              HasSubstr("w.pth does not say which model it is of; say it with --model NAME"));
  EXPECT_THAT(EvalJob({.weights = "w.pth", .data = "/val", .model = "resnet9"}, {}).error().front().message,
              HasSubstr("allowed: resnet18"));
}

}  // namespace
}  // namespace imgd::trainer
