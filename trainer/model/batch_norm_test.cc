#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "trainer/cuda/cuda_parts.h"
#include "trainer/model/layers.h"

namespace imgd::trainer {
namespace {

/// Adds up the tensors of two threads that each stand for a rank.
class TwoRanks {
 public:
  void Sum(int rank, at::Tensor& values) {
    std::unique_lock lock(mutex_);
    given_[rank] = values.clone();
    const int round = ++arrivals_ % 2 == 0 ? ++rounds_ : rounds_ + 1;
    changed_.notify_all();
    changed_.wait(lock, [&] { return rounds_ >= round; });
    values.copy_(given_[0] + given_[1]);
    // Nobody gives anew before both have taken.
    const int taken = ++taken_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return taken_ >= (taken + 1) / 2 * 2; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  at::Tensor given_[2];
  int arrivals_ = 0, rounds_ = 0, taken_ = 0;
};

struct Passed {
  at::Tensor y, dx, dw, db, mean, variance;
};

/// One step of a layer on `x`, with a loss that is `weights` times what comes out.
Passed Pass(const at::Tensor& x, const at::Tensor& weights, std::shared_ptr<SumOverRanks> over_ranks) {
  BatchNorm layer(x.size(1));
  torch::NoGradGuard no_grad;
  layer->weight.copy_(at::linspace(0.5, 1.5, x.size(1)));
  layer->bias.copy_(at::linspace(-1, 1, x.size(1)));
  if (over_ranks) layer->SetSum(std::move(over_ranks));
  at::AutoGradMode grad(true);
  const auto input = x.clone().requires_grad_();
  const auto y = layer->forward(input);
  (y * weights).sum().backward();
  return {y.detach(),         input.grad(),        layer->weight.grad(),
          layer->bias.grad(), layer->running_mean, layer->running_var};
}

void ExpectClose(const at::Tensor& a, const at::Tensor& b, const char* what) {
  EXPECT_TRUE(at::allclose(a, b, 1e-4, 1e-5)) << what << "\n" << a << "\n" << b;
}

TEST(SynchronisedBatchNorm, OfTwoRanksIsThatOfTheirImagesTogether) {
  torch::manual_seed(1);
  const auto x = at::randn({5, 3, 4, 4}) * 3 + 100;  // far from 0, where squares would cancel
  const auto weights = at::randn({5, 3, 4, 4});
  const Passed whole = Pass(x, weights, nullptr);
  TwoRanks ranks;
  Passed parts[2];
  std::thread threads[2];
  for (int rank = 0; rank < 2; ++rank) {
    threads[rank] = std::thread([&, rank] {
      auto sum = std::make_shared<SumOverRanks>();
      sum->sum = [&ranks, rank](at::Tensor& values) { ranks.Sum(rank, values); };
      const int64_t from = rank == 0 ? 0 : 2;
      const int64_t count = rank == 0 ? 2 : 3;
      parts[rank] = Pass(x.narrow(0, from, count), weights.narrow(0, from, count), sum);
    });
  }
  for (auto& thread : threads) thread.join();
  ExpectClose(at::cat({parts[0].y, parts[1].y}), whole.y, "y");
  ExpectClose(at::cat({parts[0].dx, parts[1].dx}), whole.dx, "dx");
  ExpectClose(parts[0].dw + parts[1].dw, whole.dw, "dw");
  ExpectClose(parts[0].db + parts[1].db, whole.db, "db");
  for (const auto& part : parts) {
    ExpectClose(part.mean, whole.mean, "running mean");
    ExpectClose(part.variance, whole.variance, "running variance");
  }
}

TEST(SynchronisedBatchNorm, AStandInIsNotLearntFrom) {
  // The other rank's sums, of images that are far from the stand-in.
  auto none = std::make_shared<SumOverRanks>();
  none->sum = [](at::Tensor& sums) { sums += sums.numel() % 2 == 1 ? 10 : 7; };
  none->has_images = false;
  const Passed passed = Pass(at::zeros({1, 2, 3, 3}), at::zeros({1, 2, 3, 3}), none);
  EXPECT_TRUE(at::equal(passed.dx, at::zeros({1, 2, 3, 3})));
  EXPECT_TRUE(at::equal(passed.dw, at::zeros({2})));
  EXPECT_TRUE(at::allclose(passed.mean, at::full({2}, 0.1)));  // of 10 values whose sum is 10
}

TEST(SynchronisedBatchNorm, ARankWithoutImagesCountsForNothing) {
  auto none = std::make_shared<SumOverRanks>();
  none->sum = [](at::Tensor&) {};
  none->has_images = false;
  const Passed passed = Pass(at::zeros({1, 2, 3, 3}), at::zeros({1, 2, 3, 3}), none);
  EXPECT_TRUE(passed.y.isfinite().all().item<bool>());
  EXPECT_TRUE(at::equal(passed.dx, at::zeros({1, 2, 3, 3})));
  EXPECT_TRUE(at::equal(passed.mean, at::zeros({2})));
  EXPECT_TRUE(at::equal(passed.variance, at::ones({2})));
}

using Then = NormKernels::Then;

/// By the words of the interface, on the CPU.
class PlainKernels final : public NormKernels {
 public:
  std::optional<Normed> Forward(Then then, const at::Tensor& x, const at::Tensor& shortcut,
                                const at::Tensor& weight, const at::Tensor& bias,
                                const at::Tensor& running_mean, const at::Tensor& running_variance,
                                double momentum, double epsilon) override {
    if (x.size(1) % 4 != 0) return std::nullopt;
    auto [y, mean, inverse] =
        at::native_batch_norm(x, weight, bias, running_mean, running_variance, true, momentum, epsilon);
    if (then == Then::kAddRelu) y = y + shortcut;
    if (then != Then::kNothing) y = y.relu();
    return Normed{y, mean, inverse, at::empty({0}, at::kByte)};
  }

  Gradients Backward(Then then, const at::Tensor& dy, const at::Tensor& x, const Normed& normed,
                     const at::Tensor& weight, const at::Tensor& /*bias*/, double epsilon) override {
    const auto d = then == Then::kNothing ? dy : dy * (normed.y > 0);
    const auto [dx, dw, db] = at::native_batch_norm_backward(
        d, x, weight, {}, {}, normed.mean, normed.inverse, true, epsilon, {true, true, true});
    return {dx, dw, db, then == Then::kAddRelu ? d : at::Tensor()};
  }
};

// Looked for before a test has LibTorch look for it: what that finds stays.
const auto cuda_parts = FindCudaParts(/*wanted=*/false);

struct FusedBatchNorm : testing::Test {
  ~FusedBatchNorm() override { UseNormKernels(nullptr); }

  /// y, the gradients of what went in and of the layer, and what the layer learnt of the images.
  static std::vector<at::Tensor> Pass(Then then, at::Tensor x, at::Tensor shortcut, const at::Tensor& dy,
                                      NormKernels* kernels) {
    UseNormKernels(kernels);
    BatchNorm layer(x.size(1));
    {
      torch::NoGradGuard no_grad;
      layer->weight.copy_(at::linspace(0.5, 1.5, x.size(1)));
      layer->bias.copy_(at::linspace(-1, 1, x.size(1)));
    }
    layer->to(x.device());
    x = x.detach().requires_grad_();
    shortcut = shortcut.detach().requires_grad_();
    const auto y = Follow(layer, then, x, shortcut);
    is_fused = y.grad_fn()->name().find("FusedNorm") != std::string::npos;
    y.backward(dy);
    std::vector<at::Tensor> out{
        y.detach(),          x.grad(),           layer->weight.grad(),      layer->bias.grad(),
        layer->running_mean, layer->running_var, layer->num_batches_tracked};
    if (then == Then::kAddRelu) out.push_back(shortcut.grad());
    return out;
  }

  static void ExpectClose(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want,
                          double most) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const auto a = got[i].to(at::kDouble), b = want[i].to(at::kDouble);
      EXPECT_LE((a - b).norm().item<double>(), most * b.norm().item<double>()) << "result " << i;
    }
  }

  inline static bool is_fused = false;

 private:
  static at::Tensor Follow(BatchNorm& layer, Then then, const at::Tensor& x, const at::Tensor& shortcut) {
    if (then == Then::kNothing) return layer->forward(x);
    return then == Then::kRelu ? layer->Relu(x) : layer->AddRelu(x, shortcut);
  }
};

TEST_F(FusedBatchNorm, IsTheSameByOneKernelOfAGpu) {
  ASSERT_TRUE(cuda_parts) << cuda_parts.error().message;
  if (*cuda_parts == nullptr || (*cuda_parts)->GpuCount() == 0) GTEST_SKIP() << "no GPU here";
  for (const int channels : {64, 1000, 6}) {
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      for (const Then then : {Then::kNothing, Then::kRelu, Then::kAddRelu}) {
        SCOPED_TRACE(
            fmt::format("{} channels, {}, {}", channels, at::toString(type), static_cast<int>(then)));
        const auto drawn = [&] {
          return at::randn({16, channels, 7, 7})
              .to(at::kCUDA, type)
              .contiguous(at::MemoryFormat::ChannelsLast);
        };
        const auto x = drawn(), shortcut = drawn(), dy = drawn();
        const auto got = Pass(then, x, shortcut, dy, &(*cuda_parts)->Norm());
        const bool fused = is_fused;
        EXPECT_EQ(fused, channels % 4 == 0);
        // Otherwise it is rounded before the shortcut is added, so that some come out on the other side of 0.
        ExpectClose(got, Pass(then, x.to(at::kFloat), shortcut.to(at::kFloat), dy.to(at::kFloat), nullptr),
                    fused ? 0.01 : 0.05);
      }
    }
  }
}

TEST_F(FusedBatchNorm, GradientsComeToWhereTheyBelong) {
  PlainKernels kernels;
  for (const Then then : {Then::kNothing, Then::kRelu, Then::kAddRelu}) {
    SCOPED_TRACE(static_cast<int>(then));
    const auto x = at::randn({4, 8, 5, 5}), shortcut = at::randn({4, 8, 5, 5}), dy = at::randn({4, 8, 5, 5});
    const auto got = Pass(then, x, shortcut, dy, &kernels);
    EXPECT_TRUE(is_fused);
    ExpectClose(got, Pass(then, x, shortcut, dy, nullptr), 1e-5);
    EXPECT_FALSE(is_fused);
  }
}

TEST_F(FusedBatchNorm, WhatFollowsMayChangeItInPlace) {
  PlainKernels kernels;
  UseNormKernels(&kernels);
  BatchNorm layer(4);
  const auto x = at::randn({2, 4, 3, 3}).requires_grad_();
  layer->forward(x).relu_().sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST_F(FusedBatchNorm, IsOfTrainingAloneAndOfWhatTheKernelsTake) {
  PlainKernels kernels;
  const auto x = at::randn({4, 3, 5, 5});
  (void)Pass(Then::kRelu, x, x, x, &kernels);
  EXPECT_FALSE(is_fused) << "of three channels";
  BatchNorm layer(4);
  layer->eval();
  const auto y = layer->Relu(at::randn({2, 4, 3, 3}));
  EXPECT_EQ(y.grad_fn()->name().find("FusedNorm"), std::string::npos);
}

TEST_F(FusedBatchNorm, WhatFollowsIsThatOfSeparateSteps) {
  const auto x = at::randn({4, 3, 5, 5}), shortcut = at::randn({4, 3, 5, 5});
  BatchNorm layer(3), other(3);
  EXPECT_TRUE(at::equal(layer->Relu(x), other->forward(x).relu()));
  EXPECT_TRUE(at::equal(layer->AddRelu(x, shortcut), (other->forward(x) + shortcut).relu()));
  EXPECT_TRUE(at::equal(layer->running_mean, other->running_mean));
}

}  // namespace
}  // namespace imgd::trainer
