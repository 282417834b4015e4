#include <gtest/gtest.h>

#include <thread>

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

}  // namespace
}  // namespace imgd::trainer
