#include "trainer/torch.h"
//
#include <gtest/gtest.h>

#include <cmath>

#include "trainer/optim/loss_scale.h"
#include "trainer/optim/optimizer.h"

namespace imgd::trainer {
namespace {

at::Tensor Parameter(const std::vector<float>& values, at::IntArrayRef shape) {
  return at::tensor(values).reshape(shape).clone().set_requires_grad(true);
}

at::Tensor Row(const std::vector<float>& values) { return at::tensor(values).unsqueeze(0); }

std::unique_ptr<Optimizer> Make(const NamedTensors& parameters, const JobSpec::Optimizer& settings) {
  return MakeOptimizer(parameters, settings, nullptr);
}

void SetGradient(at::Tensor& parameter, float value) {
  parameter.mutable_grad() = at::full_like(parameter.detach(), value);
}

TEST(Sgd, TakesNesterovsStepAsComputedByHand) {
  auto w = Parameter({1.0F, 2.0F}, {1, 2});
  const auto sgd = Make({{"fc.weight", w}}, {.momentum = 0.9, .nesterov = true, .weight_decay = 0.1});
  SetGradient(w, 0.5F);
  sgd->Step(0.1);
  // g = 0.5 + 0.1 * w = {0.6, 0.7}; b = g; w -= 0.1 * (g + 0.9 * b)
  EXPECT_TRUE(at::allclose(w, Row({1 - 0.114F, 2 - 0.133F})));
  SetGradient(w, 0.5F);
  sgd->Step(0.1);
  // g = 0.5 + 0.1 * {0.886, 1.867}; b = 0.9 * {0.6, 0.7} + g = {1.1286, 1.3167}; w -= 0.1 * (g + 0.9 * b)
  EXPECT_TRUE(at::allclose(w, Row({0.725566F, 1.679827F})));
  EXPECT_TRUE(at::allclose(sgd->State()[0].second, Row({1.1286F, 1.3167F})));
}

TEST(Sgd, PlainMomentumLeavesOutTheLookAhead) {
  auto w = Parameter({1.0F, 2.0F}, {1, 2});
  const auto sgd = Make({{"fc.weight", w}}, {.momentum = 0.5, .nesterov = false, .weight_decay = 0});
  for (int i = 0; i < 2; ++i) {
    SetGradient(w, 1.0F);
    sgd->Step(0.1);
  }
  EXPECT_TRUE(at::allclose(w, Row({1 - 0.1F - 0.15F, 2 - 0.1F - 0.15F})));
}

TEST(Sgd, MayDoWithoutMomentum) {
  auto w = Parameter({1.0F, 2.0F}, {1, 2});
  const auto sgd = Make({{"fc.weight", w}}, {.momentum = 0, .nesterov = false, .weight_decay = 0.1});
  for (int i = 0; i < 2; ++i) {
    SetGradient(w, 0.5F);
    sgd->Step(0.1);
  }
  // w = 0.99 * w - 0.05, twice.
  EXPECT_TRUE(at::allclose(w, Row({0.8806F, 1.8607F})));
  EXPECT_TRUE(at::equal(sgd->State()[0].second, Row({0, 0})));
}

TEST(ClipNorm, ScalesAllGradientsByTheirNormTogether) {
  const std::vector<at::Tensor> gradients = {Row({3, 0}), at::tensor({-4.0F})};
  EXPECT_FLOAT_EQ(NormOf(gradients).item<float>(), 5);
  ClipNorm(gradients, NormOf(gradients), 10);
  EXPECT_TRUE(at::equal(gradients[0], Row({3, 0}))) << "small enough";
  ClipNorm(gradients, NormOf(gradients), 0.5);
  EXPECT_TRUE(at::allclose(gradients[0], Row({0.3F, 0})));
  EXPECT_TRUE(at::allclose(gradients[1], at::tensor({-0.4F})));
}

TEST(Sgd, VectorsAndBiasesDoNotDecay) {
  auto weight = Parameter({1.0F}, {1, 1});
  auto bias = Parameter({1.0F}, {1});
  const auto sgd = Make({{"fc.weight", weight}, {"fc.bias", bias}}, {.weight_decay = 0.5});
  SetGradient(weight, 0);
  SetGradient(bias, 0);
  sgd->Step(0.1);
  EXPECT_LT(weight.item<float>(), 1.0F);
  EXPECT_EQ(bias.item<float>(), 1.0F);
  Make({{"fc.bias", bias}}, {.norm_weight_decay = 0.5})->Step(0.1);
  EXPECT_LT(bias.item<float>(), 1.0F) << "unless they are told to";
}

TEST(Optimizer, BiasesOfOtherLayersThanNormsMayDecayByThemselves) {
  const auto model = *MakeModel({.name = "resnet18"}, {.classes = 4});
  const JobSpec::Optimizer settings{.weight_decay = 0.5, .norm_weight_decay = 0.1, .bias_weight_decay = 0.25};
  for (const auto& group : GroupParameters(Parameters(*model), settings, model.get())) {
    for (const auto& name : group.names) {
      const bool of_norm =
          name.find("bn") != std::string::npos || name.find("downsample.1") != std::string::npos;
      EXPECT_EQ(group.weight_decay, of_norm ? 0.1 : name == "fc.bias" ? 0.25 : 0.5) << name;
    }
  }
}

TEST(Sgd, RefusesAGradientThatLiesOtherwiseInMemory) {
  auto w = at::randn({4, 3, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
  const auto sgd = Make({{"conv1.weight", w}}, {});
  const auto before = w.detach().clone();
  w.mutable_grad() = at::zeros({4, 3, 3, 3});
  EXPECT_THROW(sgd->Step(0.1), c10::Error);
  EXPECT_TRUE(at::equal(before, w));
  w.mutable_grad() = at::Tensor();
  EXPECT_THROW(sgd->Step(0.1), c10::Error);
}

TEST(Sgd, StridesAlongSizesOfOneDoNotMatter) {
  EXPECT_TRUE(
      SameLayout(at::empty({4, 3, 1, 1}), at::empty({4, 3, 1, 1}).as_strided({4, 3, 1, 1}, {3, 1, 3, 3})));
  EXPECT_FALSE(SameLayout(at::empty({4, 3, 2, 2}), at::empty({4, 3, 2, 2}, at::MemoryFormat::ChannelsLast)));
  EXPECT_FALSE(SameLayout(at::empty({4, 3}), at::empty({3, 4})));
}

// torch.optim.AdamW of two steps: m and v corrected for their start, decay apart from the gradient.
TEST(AdamW, TakesTheStepsThatAreComputedByHand) {
  auto w = Parameter({1.0F, 2.0F}, {1, 2});
  const JobSpec::Optimizer settings{
      .kind = "adamw", .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 0.1};
  const auto adamw = Make({{"fc.weight", w}}, settings);
  double m = 0;
  double v = 0;
  double expected[2] = {1, 2};
  for (int step = 1; step <= 2; ++step) {
    const double g = 0.5 * step;
    SetGradient(w, static_cast<float>(g));
    adamw->Step(0.01);
    m = 0.9 * m + 0.1 * g;
    v = 0.99 * v + 0.01 * g * g;
    const double change = m / (1 - std::pow(0.9, step)) / (std::sqrt(v / (1 - std::pow(0.99, step))) + 1e-8);
    for (double& value : expected) value = value * (1 - 0.01 * 0.1) - 0.01 * change;
  }
  EXPECT_TRUE(
      at::allclose(w, Row({static_cast<float>(expected[0]), static_cast<float>(expected[1])}), 1e-5, 1e-6));
  EXPECT_EQ(adamw->State()[2].first, "fc.weight.step");
  EXPECT_EQ(adamw->State()[2].second.item<float>(), 2);
}

TEST(AdamW, AnOverflowIsNoStep) {
  auto w = Parameter({3.0F}, {1, 1});
  const auto adamw = Make({{"fc.weight", w}}, {.kind = "adamw"});
  SetGradient(w, 1);
  adamw->Step(0.1, at::ones({1}));
  EXPECT_EQ(w.item<float>(), 3);
  for (const auto& [name, value] : adamw->State()) EXPECT_EQ(value.sum().item<float>(), 0) << name;
}

TEST(Lars, ScalesEachTensorsStepByItsNorms) {
  auto w = Parameter({3.0F, 4.0F}, {1, 2});
  auto bias = Parameter({1.0F}, {1});
  const JobSpec::Optimizer settings{
      .kind = "lars", .momentum = 0.5, .nesterov = false, .trust = 0.01, .weight_decay = 0.1};
  const auto lars = Make({{"fc.weight", w}, {"fc.bias", bias}}, settings);
  w.mutable_grad() = Row({0, 2});
  SetGradient(bias, 1);
  lars->Step(10);
  // |w| = 5, |g| = 2: trust 0.01 * 5 / (2 + 0.1 * 5) = 0.02; g + 0.1 w = {0.3, 2.4}; times 10 * 0.02.
  EXPECT_TRUE(at::allclose(w, Row({3 - 0.06F, 4 - 0.48F})));
  EXPECT_TRUE(at::allclose(bias, at::tensor({-9.0F}))) << "plain SGD";
  EXPECT_TRUE(at::allclose(lars->State()[0].second, Row({0.06F, 0.48F})));
  SetGradient(w, 0);
  SetGradient(bias, 0);
  const auto before = w.detach().clone();
  lars->Step(10);
  // No gradient: trust 1; 0.1 w times 10, and half of the last step.
  EXPECT_TRUE(at::allclose(w, before - before - Row({0.03F, 0.24F}), 1e-5, 1e-5));
}

TEST(Lars, LooksAheadByNesterovsRuleToo) {
  auto w = Parameter({3.0F, 4.0F}, {1, 2});
  auto bias = Parameter({1.0F}, {1});
  const JobSpec::Optimizer settings{
      .kind = "lars", .momentum = 0.5, .nesterov = true, .trust = 0.01, .weight_decay = 0.1};
  const auto lars = Make({{"fc.weight", w}, {"fc.bias", bias}}, settings);
  w.mutable_grad() = Row({0, 2});
  SetGradient(bias, 1);
  lars->Step(10);
  // As above, c = v = {0.06, 0.48}, and for the bias 10: w -= c + 0.5 * v.
  EXPECT_TRUE(at::allclose(w, Row({3 - 0.09F, 4 - 0.72F})));
  EXPECT_TRUE(at::allclose(bias, at::tensor({-14.0F})));
  EXPECT_TRUE(at::allclose(lars->State()[0].second, Row({0.06F, 0.48F})));
  SetGradient(w, 0);
  SetGradient(bias, 0);
  lars->Step(10);
  // No gradient: trust 1, c = {2.91, 3.28}; v = 0.5 * {0.06, 0.48} + c; w -= c + 0.5 * v.
  EXPECT_TRUE(at::allclose(w, Row({2.91F - 4.38F, 3.28F - 5.04F}), 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(bias, at::tensor({-14.0F - 2.5F}))) << "v = 5 and no decay";
}

TEST(Optimizer, LayersFarFromTheHeadLearnMoreSlowly) {
  const auto model = *MakeModel({.name = "resnet18"}, {.classes = 4});
  const auto groups = GroupParameters(Parameters(*model), {.layer_decay = 0.5}, model.get());
  for (const auto& group : groups) {
    for (const auto& name : group.names)
      EXPECT_DOUBLE_EQ(group.rate, std::pow(0.5, 5 - model->LayerOf(name))) << name;
  }
  EXPECT_EQ(groups.size(), 12U);
}

TEST(Optimizer, TheStepOfALayerIsAsLongAsItsRateSays) {
  const auto model = *MakeModel({.name = "resnet18"}, {.classes = 4});
  const JobSpec::Optimizer settings{.momentum = 0, .nesterov = false, .weight_decay = 0, .layer_decay = 0.5};
  const auto sgd = MakeOptimizer(Parameters(*model), settings, model.get());
  auto parameters = Parameters(*model);
  std::vector<at::Tensor> before;
  for (auto& [name, parameter] : parameters) {
    before.push_back(parameter.detach().clone());
    SetGradient(parameter, 1);
  }
  sgd->Step(0.1);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    const double step = 0.1 * std::pow(0.5, 5 - model->LayerOf(name));
    EXPECT_TRUE(at::allclose(before[i] - parameter.detach(), at::full_like(before[i], step), 1e-3, 1e-6))
        << name;
  }
}

TEST(Optimizer, WhatNeedsNoGradientIsLeftOut) {
  auto w = Parameter({3.0F}, {1, 1});
  auto frozen = Parameter({3.0F}, {1, 1}).set_requires_grad(false);
  const auto sgd = Make({{"a.weight", w}, {"b.weight", frozen}}, {});
  EXPECT_EQ(sgd->State().size(), 1U);
  SetGradient(w, 1);
  sgd->Step(0.1);
  EXPECT_EQ(frozen.item<float>(), 3);
}

TEST(LossScale, ScalesTheLossAndUnscalesTheGradients) {
  LossScale scale(at::kCPU, 1024, 0);
  auto w = Parameter({3.0F}, {1, 1});
  scale.Scale(w.sum()).backward();
  EXPECT_EQ(w.grad().item<float>(), 1024);
  EXPECT_EQ(scale.Unscale({w.grad()})->item<float>(), 0);
  EXPECT_EQ(w.grad().item<float>(), 1);
  EXPECT_EQ(scale.streak(), 1);
}

TEST(LossScale, AnOverflowLeavesTheStepOutAndHalvesTheScale) {
  LossScale scale(at::kCPU, 1024, 1999);
  auto w = Parameter({3.0F}, {1, 1});
  const auto sgd = Make({{"fc.weight", w}}, {});
  w.mutable_grad() = at::full({1, 1}, std::numeric_limits<float>::infinity());
  sgd->Step(0.1, scale.Unscale(sgd->Gradients()));
  EXPECT_EQ(w.item<float>(), 3.0F);
  EXPECT_EQ(sgd->State()[0].second.item<float>(), 0.0F);
  EXPECT_EQ(scale.scale(), 512);
  EXPECT_EQ(scale.streak(), 0);
}

TEST(LossScale, DoublesAfterTwoThousandGoodSteps) {
  LossScale scale(at::kCPU, 1024, 1999);
  scale.Unscale({at::ones({1})});
  EXPECT_EQ(scale.scale(), 2048);
}

}  // namespace
}  // namespace imgd::trainer
