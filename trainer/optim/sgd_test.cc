#include "trainer/torch.h"
//
#include <gtest/gtest.h>

#include "trainer/optim/loss_scale.h"
#include "trainer/optim/sgd.h"

namespace imgd::trainer {
namespace {

at::Tensor Parameter(const std::vector<float>& values, at::IntArrayRef shape) {
  return at::tensor(values).reshape(shape).clone().set_requires_grad(true);
}

at::Tensor Row(const std::vector<float>& values) { return at::tensor(values).unsqueeze(0); }

void SetGradient(at::Tensor& parameter, float value) {
  parameter.mutable_grad() = at::full_like(parameter.detach(), value);
}

TEST(Sgd, TakesNesterovsStepAsComputedByHand) {
  auto w = Parameter({1.0F, 2.0F}, {1, 2});
  Sgd sgd({{"fc.weight", w}}, {.momentum = 0.9, .nesterov = true, .weight_decay = 0.1});
  SetGradient(w, 0.5F);
  sgd.Step(0.1);
  // g = 0.5 + 0.1 * w = {0.6, 0.7}; b = g; w -= 0.1 * (g + 0.9 * b)
  EXPECT_TRUE(at::allclose(w, Row({1 - 0.114F, 2 - 0.133F})));
  SetGradient(w, 0.5F);
  sgd.Step(0.1);
  // g = 0.5 + 0.1 * {0.886, 1.867}; b = 0.9 * {0.6, 0.7} + g = {1.1286, 1.3167}; w -= 0.1 * (g + 0.9 * b)
  EXPECT_TRUE(at::allclose(w, Row({0.725566F, 1.679827F})));
  EXPECT_TRUE(at::allclose(sgd.MomentumBuffers()[0].second, Row({1.1286F, 1.3167F})));
}

TEST(Sgd, PlainMomentumLeavesOutTheLookAhead) {
  auto w = Parameter({1.0F, 2.0F}, {1, 2});
  Sgd sgd({{"fc.weight", w}}, {.momentum = 0.5, .nesterov = false, .weight_decay = 0});
  for (int i = 0; i < 2; ++i) {
    SetGradient(w, 1.0F);
    sgd.Step(0.1);
  }
  EXPECT_TRUE(at::allclose(w, Row({1 - 0.1F - 0.15F, 2 - 0.1F - 0.15F})));
}

TEST(ClipNorm, ScalesAllGradientsByTheirNormTogether) {
  const std::vector<at::Tensor> gradients = {Row({3, 0}), at::tensor({-4.0F})};
  EXPECT_FLOAT_EQ(ClipNorm(gradients, 10).item<float>(), 5);
  EXPECT_TRUE(at::equal(gradients[0], Row({3, 0}))) << "small enough";
  EXPECT_FLOAT_EQ(ClipNorm(gradients, 0.5).item<float>(), 5);
  EXPECT_TRUE(at::allclose(gradients[0], Row({0.3F, 0})));
  EXPECT_TRUE(at::allclose(gradients[1], at::tensor({-0.4F})));
}

TEST(Sgd, VectorsAndBiasesDoNotDecay) {
  auto weight = Parameter({1.0F}, {1, 1});
  auto bias = Parameter({1.0F}, {1});
  Sgd sgd({{"fc.weight", weight}, {"fc.bias", bias}},
          {.momentum = 0.9, .nesterov = true, .weight_decay = 0.5});
  SetGradient(weight, 0);
  SetGradient(bias, 0);
  sgd.Step(0.1);
  EXPECT_LT(weight.item<float>(), 1.0F);
  EXPECT_EQ(bias.item<float>(), 1.0F);
}

TEST(Sgd, RefusesAGradientThatLiesOtherwiseInMemory) {
  auto w = at::randn({4, 3, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
  Sgd sgd({{"conv1.weight", w}}, {});
  const auto before = w.detach().clone();
  w.mutable_grad() = at::zeros({4, 3, 3, 3});
  EXPECT_THROW(sgd.Step(0.1), c10::Error);
  EXPECT_TRUE(at::equal(before, w));
  w.mutable_grad() = at::Tensor();
  EXPECT_THROW(sgd.Step(0.1), c10::Error);
}

TEST(Sgd, StridesAlongSizesOfOneDoNotMatter) {
  EXPECT_TRUE(
      SameLayout(at::empty({4, 3, 1, 1}), at::empty({4, 3, 1, 1}).as_strided({4, 3, 1, 1}, {3, 1, 3, 3})));
  EXPECT_FALSE(SameLayout(at::empty({4, 3, 2, 2}), at::empty({4, 3, 2, 2}, at::MemoryFormat::ChannelsLast)));
  EXPECT_FALSE(SameLayout(at::empty({4, 3}), at::empty({3, 4})));
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
  Sgd sgd({{"fc.weight", w}}, {});
  w.mutable_grad() = at::full({1, 1}, std::numeric_limits<float>::infinity());
  sgd.Step(0.1, scale.Unscale(sgd.Gradients()));
  EXPECT_EQ(w.item<float>(), 3.0F);
  EXPECT_EQ(sgd.MomentumBuffers()[0].second.item<float>(), 0.0F);
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
