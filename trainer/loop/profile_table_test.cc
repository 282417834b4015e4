#include "trainer/loop/profile_table.h"

#include <gtest/gtest.h>

namespace imgd::trainer {
namespace {

constexpr int64_t kMs = 1'000'000;

ProfiledEvent Op(const char* name, int64_t start, int64_t end, uint64_t thread = 1) {
  return {.name = name, .thread = thread, .start_ns = start * kMs, .end_ns = end * kMs};
}

TEST(ProfileTable, TimeOfItsOwnIsWithoutWhatAnOperatorCalls) {
  // conv2d calls convolution, which calls add and mul; then conv2d again, and something on another thread.
  const auto costs = CostsOf({Op("add", 2, 4), Op("conv2d", 0, 10), Op("convolution", 1, 9), Op("mul", 4, 6),
                              Op("conv2d", 10, 11), Op("sgd", 3, 5, 2)},
                             false);
  ASSERT_EQ(costs.size(), 5U);
  EXPECT_EQ(costs[0].name, "convolution");
  EXPECT_DOUBLE_EQ(costs[0].self_seconds, 0.004);
  EXPECT_DOUBLE_EQ(costs[0].total_seconds, 0.008);
  EXPECT_EQ(costs[1].name, "conv2d");
  EXPECT_EQ(costs[1].calls, 2U);
  EXPECT_DOUBLE_EQ(costs[1].self_seconds, 0.003);
  EXPECT_DOUBLE_EQ(costs[1].total_seconds, 0.011);
  double all = 0;
  for (const auto& cost : costs) all += cost.self_seconds;
  EXPECT_DOUBLE_EQ(all, 0.013) << "the time of both threads, once";
}

TEST(ProfileTable, WhatCallsItselfTookItsTimeOnce) {
  const auto costs = CostsOf({Op("f", 0, 10), Op("f", 2, 8)}, false);
  ASSERT_EQ(costs.size(), 1U);
  EXPECT_DOUBLE_EQ(costs[0].self_seconds, 0.010);
  EXPECT_DOUBLE_EQ(costs[0].total_seconds, 0.010);
}

TEST(ProfileTable, ScopesAndKernelsAreNoOperators) {
  auto scope = Op("forward", 0, 10);
  scope.is_scope = true;
  auto kernel = Op("sgemm", 0, 9);
  kernel.on_gpu = true;
  const std::vector<ProfiledEvent> events = {scope, Op("relu", 1, 2), kernel};
  ASSERT_EQ(CostsOf(events, false).size(), 1U);
  EXPECT_EQ(CostsOf(events, false)[0].name, "relu");
  ASSERT_EQ(CostsOf(events, true).size(), 1U);
  EXPECT_EQ(CostsOf(events, true)[0].name, "sgemm");
}

TEST(ProfileTable, TheTableHasSharesAndALimit) {
  EXPECT_EQ(CostTable(CostsOf({Op("a", 0, 30), Op("b", 30, 40)}, false), "operator", 0.1, 1),
            "   calls     self ms    share    total ms  operator\n"
            "       1       30.00   30.0 %       30.00  a\n");
}

}  // namespace
}  // namespace imgd::trainer
