#include "cli/recipes.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "cli/testing/fake_daemon.h"
#include "cli/testing/run_cli.h"
#include "common/job_file.h"

namespace imgd::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

CliResult RunRecipes(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "recipes");
  return RunCli(CallTo("127.0.0.1:1", std::move(arguments)));
}

/// What `imgcli recipes show NAME` tells of each epoch.
Json PlanOf(const std::string& name) {
  const auto done = RunRecipes({"show", name, "-o", "json"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  return Json::parse(done.out)["plan"];
}

/// What the recipe's file says, as a job that trains on some set.
JobSpec RecipeSpec(const std::string& name) {
  const auto done = RunRecipes({"show", name, "--file", "--set", "data.train=/t"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  auto spec = ParseJobFile(done.out, name);
  EXPECT_TRUE(spec.has_value()) << spec.error().front().message;
  return spec.value_or(JobSpec());
}

double Rate(const Json& plan, size_t epoch) { return plan.at(epoch)["learning_rate"]; }
int Size(const Json& plan, size_t epoch) { return plan.at(epoch)["image_size"]; }
int Batch(const Json& plan, size_t epoch) { return plan.at(epoch)["global_batch"]; }

TEST(Recipes, AreListedWithTheirResults) {
  const auto done = RunRecipes({});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  for (const char* name : {"rn50-90ep", "rn50-dawnbench-16x8", "rn50-horovod-32", "rn50-ffcv-16",
                           "rn50-ffcv-40", "rn50-lars-32k", "rn50-torchvision-v2", "rn18-2gpu"}) {
    EXPECT_THAT(done.out, HasSubstr(name));
  }
  EXPECT_THAT(done.out, testing::Not(HasSubstr("SOURCE")));
  EXPECT_THAT(RunRecipes({"-o", "wide"}).out, AllOf(HasSubstr("SOURCE"), HasSubstr("Goyal et al. 2017")));
  for (const auto& recipe : Json::parse(RunRecipes({"-o", "json"}).out)) {
    for (const char* key : {"title", "source", "result", "hardware"})
      EXPECT_NE(recipe[key], "") << recipe["name"];
  }
}

TEST(Recipes, AMisspeltOneIsAnErrorWithTheNearest) {
  const auto done = RunRecipes({"show", "rn50-90epp"});
  EXPECT_NE(done.exit_code, 0);
  EXPECT_THAT(done.err, AllOf(HasSubstr("no recipe 'rn50-90epp'"), HasSubstr("did you mean 'rn50-90ep'?")));
}

TEST(Recipes, AreShownWithAPlotAndATable) {
  const auto done = RunRecipes({"show", "rn50-ffcv-16"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("learning rate by epoch"), HasSubstr("libffcv"), HasSubstr("EPOCH")));
  EXPECT_THAT(RunRecipes({"show", "rn50-ffcv-16", "--file"}).out, HasSubstr("blurpool: true"));
}

TEST(Recipes, WhatChangesWithTheEpochsIsPlotted) {
  EXPECT_THAT(RunRecipes({"show", "rn50-dawnbench-16x8"}).out,
              AllOf(HasSubstr("learning rate by epoch"), HasSubstr("image size by epoch"),
                    HasSubstr("global batch by epoch")));
  EXPECT_THAT(RunRecipes({"show", "rn50-ffcv-16"}).out,
              AllOf(HasSubstr("image size by epoch"), Not(HasSubstr("global batch by epoch"))));
  EXPECT_THAT(RunRecipes({"show", "rn50-90ep"}).out,
              AllOf(HasSubstr("learning rate by epoch"), Not(HasSubstr("image size by epoch")),
                    Not(HasSubstr("global batch by epoch"))));
}

TEST(Recipes, AnErrorInAChangeIsNamed) {
  const auto done = RunRecipes({"show", "rn50-90ep", "--set", "train.epochs=none"});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_THAT(done.err, HasSubstr("train.epochs"));
}

// Images in pixels and batches as the sources name them, which the tests below do too: for 8192 images in
// Goyal's and Horovod's, 64 to 192 on each of 128 GPUs in DAWNBench's, 512 on each of 8 in FFCV's.
TEST(Recipes, EveryEpochHasTheSizeAndTheBatchOfItsSource) {
  struct Until {
    int epoch, size, batch;
  };
  struct Expected {
    const char* recipe;
    std::vector<Until> parts;
  };
  const std::vector<Expected> all = {
      {"rn50-90ep", {{90, 224, 8192}}},
      {"rn50-dawnbench-16x8",
       {{6, 128, 8192}, {16, 128, 16384}, {19, 224, 8192}, {37, 224, 24576}, {50, 288, 16384}}},
      {"rn50-horovod-32", {{90, 224, 8192}}},
      {"rn50-ffcv-16", {{12, 160, 4096}, {16, 192, 4096}}},
      {"rn50-ffcv-40", {{32, 160, 4096}, {40, 192, 4096}}},
      {"rn50-lars-32k", {{58, 224, 32768}}},
      {"rn50-torchvision-v2", {{600, 176, 1024}}},
      {"rn18-2gpu", {{90, 224, 256}}}};
  EXPECT_EQ(all.size(), Json::parse(RunRecipes({"-o", "json"}).out).size()) << "none is left out";
  for (const auto& [recipe, parts] : all) {
    const Json plan = PlanOf(recipe);
    ASSERT_EQ(plan.size(), static_cast<size_t>(parts.back().epoch)) << recipe;
    int epoch = 0;
    for (const auto& part : parts) {
      for (; epoch < part.epoch; ++epoch) {
        EXPECT_EQ(Size(plan, static_cast<size_t>(epoch)), part.size) << recipe << ", epoch " << epoch;
        EXPECT_EQ(Batch(plan, static_cast<size_t>(epoch)), part.batch) << recipe << ", epoch " << epoch;
      }
    }
  }
}

/// In each epoch: from a thirty-second of 3.2 to all of it in five, then a tenth from each of three on.
double GoyalsRate(int epoch) {
  if (epoch < 5) return 0.1 + 3.1 * epoch / 5;
  return 3.2 * std::pow(0.1, (epoch >= 30) + (epoch >= 60) + (epoch >= 80));
}

// Goyal et al., section 5.1: 0.1 per 256 images, a tenth at 30, 60 and 80; warmed up from 0.1 in 5 epochs.
TEST(Recipes, NinetyEpochsAreGoyals) {
  const Json plan = PlanOf("rn50-90ep");
  ASSERT_EQ(plan.size(), 90U);
  for (int epoch = 0; epoch < 90; ++epoch)
    EXPECT_NEAR(Rate(plan, static_cast<size_t>(epoch)), GoyalsRate(epoch), 1e-9) << epoch;
}

// train.py, sixteen_machines, with lr = 0.235 * 8.
TEST(Recipes, DawnbenchsPhasesAreThoseOfSixteenMachines) {
  const Json plan = PlanOf("rn50-dawnbench-16x8");
  ASSERT_EQ(plan.size(), 50U);
  const double lr = 0.235 * 8;
  int epoch = 0;
  for (; epoch < 6; ++epoch)
    EXPECT_NEAR(Rate(plan, static_cast<size_t>(epoch)), lr * (1 + epoch / 6.0), 1e-9) << epoch;
  for (const auto& [until, rate] : {std::pair{16, lr * 2},
                                    {19, lr},
                                    {31, 2 * lr / (10 / 1.5)},
                                    {37, 2 * lr / (100 / 1.5)},
                                    {38, 2 * lr / 100},
                                    {50, 2 * lr / 1000}}) {
    for (; epoch < until; ++epoch) EXPECT_NEAR(Rate(plan, static_cast<size_t>(epoch)), rate, 1e-9) << epoch;
  }
}

// adjust_learning_rate() of Horovod's example with 32 GPUs and 8 batches of 32 for each all-reduce: from
// 0.0125 * 8 to 32 times that in 5 epochs, which is Goyal's.
TEST(Recipes, HorovodsRatesAreItsExamples) {
  const Json plan = PlanOf("rn50-horovod-32");
  EXPECT_NEAR(Rate(plan, 0), 0.0125 * 8, 1e-9);
  EXPECT_NEAR(Rate(plan, 5), 0.0125 * 8192 / 32, 1e-9);
  for (int epoch = 0; epoch < 90; ++epoch)
    EXPECT_NEAR(Rate(plan, static_cast<size_t>(epoch)), GoyalsRate(epoch), 1e-9) << epoch;
}

// get_cyclic_lr() and get_resolution() of FFCV's script: from 1e-4 of 1.7 to 1.7 at epoch 2, to 0 at the end;
// 160 pixels until epoch 11 (29) and 192 from 13 (34), rounded to multiples of 32 between.
TEST(Recipes, FfcvsRatesAndSizesAreItsScripts) {
  for (const auto& [name, epochs, larger] : {std::tuple{"rn50-ffcv-16", 16, 12}, {"rn50-ffcv-40", 40, 32}}) {
    const Json plan = PlanOf(name);
    ASSERT_EQ(plan.size(), static_cast<size_t>(epochs));
    EXPECT_NEAR(Rate(plan, 0), 1.7e-4, 1e-12);
    EXPECT_NEAR(Rate(plan, 1), (1.7e-4 + 1.7) / 2, 1e-9);
    for (int epoch = 2; epoch < epochs; ++epoch) {
      EXPECT_NEAR(Rate(plan, static_cast<size_t>(epoch)), 1.7 * (epochs - epoch) / (epochs - 2), 2e-6)
          << epoch;
      EXPECT_EQ(Size(plan, static_cast<size_t>(epoch)), epoch < larger ? 160 : 192) << epoch;
    }
  }
}

// MLPerf's convergence point for 32768: 21.2 after 16 epochs, then (1 - d)^2 down to 1e-4.
TEST(Recipes, LarsFollowsMlperfsConvergencePoint) {
  const Json plan = PlanOf("rn50-lars-32k");
  // Its first step has a rate of 0, which would be lost; here that has as much as each step adds.
  for (int epoch = 0; epoch < 16; ++epoch)
    EXPECT_NEAR(Rate(plan, static_cast<size_t>(epoch)), 21.2 * epoch / 16, 21.2 / (16 * 40)) << epoch;
  for (int epoch = 16; epoch < 58; ++epoch) {
    const double left = 1 - (epoch - 16) / 42.0;
    EXPECT_NEAR(Rate(plan, static_cast<size_t>(epoch)), 1e-4 + (21.2 - 1e-4) * left * left, 1e-9) << epoch;
  }
  EXPECT_EQ(plan.size(), 2267 * uint64_t{32768} / 1281167 + 1) << "2267 steps of whole batches";
}

// LinearLR from 0.01 of 0.5 over 5 epochs, then CosineAnnealingLR over 595.
TEST(Recipes, TorchvisionsRatesAreItsSchedulers) {
  const Json plan = PlanOf("rn50-torchvision-v2");
  ASSERT_EQ(plan.size(), 600U);
  for (int epoch = 0; epoch < 5; ++epoch)
    EXPECT_NEAR(Rate(plan, static_cast<size_t>(epoch)), 0.5 * (0.01 + 0.99 * epoch / 5), 1e-9) << epoch;
  for (int epoch = 5; epoch < 600; ++epoch) {
    const double cosine = 0.25 * (1 + std::cos(M_PI * (epoch - 5) / 595.0));
    EXPECT_NEAR(Rate(plan, static_cast<size_t>(epoch)), cosine, 1e-9) << epoch;
  }
}

// What the sources' own files and papers say besides their schedules, as the recipes name them. A decay of 0
// for norms: bnwd_optim_params() of imagenet18, "bn" in FFCV's script, Goyal's section 5.3,
// --norm-weight-decay of torchvision, LARS's list of what it skips (with biases).
TEST(Recipes, OptimisersAndCropsAreTheSources) {
  struct Expected {
    const char* recipe;
    double momentum, weight_decay, norm_weight_decay, bias_weight_decay, label_smoothing, min_scale;
    bool nesterov;
  };
  for (const auto& want : {Expected{"rn50-90ep", 0.9, 1e-4, 0, 1e-4, 0, 0.08, true},
                           {"rn50-dawnbench-16x8", 0.9, 1e-4, 0, 1e-4, 0, 0.08, false},
                           {"rn50-horovod-32", 0.9, 5e-5, 5e-5, 5e-5, 0, 0.08, false},
                           {"rn50-ffcv-16", 0.9, 1e-4, 0, 1e-4, 0.1, 0.08, false},
                           {"rn50-ffcv-40", 0.9, 1e-4, 0, 1e-4, 0.1, 0.08, false},
                           {"rn50-lars-32k", 0.94, 2.5e-5, 0, 0, 0.1, 0.08, false},
                           {"rn50-torchvision-v2", 0.9, 2e-5, 0, 2e-5, 0.1, 0.08, false},
                           {"rn18-2gpu", 0.9, 1e-4, 1e-4, 1e-4, 0, 0.08, false}}) {
    const JobSpec spec = RecipeSpec(want.recipe);
    const auto& optimizer = spec.optimizer;
    EXPECT_EQ(optimizer.momentum, want.momentum) << want.recipe;
    EXPECT_EQ(optimizer.nesterov, want.nesterov) << want.recipe;
    EXPECT_EQ(optimizer.weight_decay, want.weight_decay) << want.recipe;
    EXPECT_EQ(optimizer.norm_weight_decay, want.norm_weight_decay) << want.recipe;
    EXPECT_EQ(optimizer.bias_weight_decay.value_or(optimizer.norm_weight_decay), want.bias_weight_decay)
        << want.recipe;
    EXPECT_EQ(spec.loss.label_smoothing, want.label_smoothing) << want.recipe;
    EXPECT_EQ(spec.AllPhases().front().min_scale, want.min_scale) << want.recipe;
  }
  EXPECT_EQ(RecipeSpec("rn50-dawnbench-16x8").phases.back().min_scale, 0.5) << "of its images of 288 pixels";
  EXPECT_EQ(RecipeSpec("rn50-lars-32k").optimizer.trust, 0.001);
}

TEST(Recipes, SetsThatWereResizedBeforeAreGivenToThePhases) {
  const auto done = RunRecipes({"show", "rn50-dawnbench-16x8", "--file", "--set", "data.train=/t", "--set",
                                "phases.0.train=/sz160", "--set", "phases.1.train=/sz160"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const auto spec = ParseJobFile(done.out, "f");
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->phases[0].train, "/sz160");
  EXPECT_EQ(spec->phases[1].train, "/sz160");
  EXPECT_EQ(spec->phases[2].train, "");
}

TEST(Recipes, ResNet18sRatesAreThoseOfPytorchsExample) {
  const Json plan = PlanOf("rn18-2gpu");
  for (size_t epoch = 0; epoch < 90; ++epoch)
    EXPECT_NEAR(Rate(plan, epoch), 0.1 * std::pow(0.1, static_cast<double>(epoch / 30)), 1e-12) << epoch;
}

}  // namespace
}  // namespace imgd::cli
