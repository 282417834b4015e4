#include "trainer/torch.h"
//
#include <gtest/gtest.h>

#include "trainer/optim/weight_average.h"

namespace imgd::trainer {
namespace {

TEST(WeightAverage, FollowsTheWeightsAndCountsAsTheModelDoes) {
  auto w = at::tensor({1.0F, 2.0F});
  auto count = at::tensor({7L});
  WeightAverage average({{"w", w}, {"count", count}}, 0.75);
  w.copy_(at::tensor({3.0F, 2.0F}));
  count.fill_(8);
  average.Update();
  EXPECT_TRUE(at::allclose(average.values()[0].second, at::tensor({1.5F, 2.0F})));
  EXPECT_EQ(average.values()[1].second.item<int64_t>(), 8);
}

TEST(WeightAverage, TakesTheModelsPlaceForAWhile) {
  auto w = at::tensor({1.0F}).set_requires_grad(true);
  WeightAverage average({{"w", w}}, 0.5);
  {
    torch::NoGradGuard no_grad;
    w.fill_(3);
  }
  average.Update();
  {
    const WithAverage averaged(&average);
    EXPECT_EQ(w.item<float>(), 2);
  }
  EXPECT_EQ(w.item<float>(), 3);
  EXPECT_EQ(average.values()[0].second.item<float>(), 2);
  const WithAverage none(nullptr);
  EXPECT_EQ(w.item<float>(), 3);
}

}  // namespace
}  // namespace imgd::trainer
