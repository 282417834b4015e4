#include "trainer/data/order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <tuple>

namespace imgd::data {
namespace {

using testing::HasSubstr;
using Samples = std::vector<uint32_t>;

EpochOrder Order(uint32_t samples, int global_batch, int segments, uint32_t epoch = 0, uint64_t seed = 1) {
  return EpochOrder::Create({seed, epoch, samples, global_batch, segments}).value();
}

class OrderOf : public testing::TestWithParam<std::tuple<uint32_t, int, int>> {
 protected:
  uint32_t samples() const { return std::get<0>(GetParam()); }
  int batch() const { return std::get<1>(GetParam()); }
  EpochOrder order() const { return Order(samples(), batch(), std::get<2>(GetParam())); }
};

TEST_P(OrderOf, AnEpochHasEachSampleOnceAndOnlyItsLastStepIsSmaller) {
  const auto order = this->order();
  Samples all;
  for (uint64_t step = 0; step < order.steps(); ++step) {
    const auto list = order.StepSamples(step);
    ASSERT_EQ(list.size(), order.StepSize(step));
    if (step + 1 < order.steps()) {
      ASSERT_EQ(list.size(), static_cast<size_t>(batch()));
    } else {
      ASSERT_GT(list.size(), 0U);
      ASSERT_LE(list.size(), static_cast<size_t>(batch()));
    }
    all.insert(all.end(), list.begin(), list.end());
  }
  std::ranges::sort(all);
  Samples expected(samples());
  std::iota(expected.begin(), expected.end(), 0U);
  EXPECT_EQ(all, expected);
}

TEST_P(OrderOf, RanksTogetherHaveTheStepWhateverTheirNumber) {
  const auto order = this->order();
  for (int world_size = 1; world_size <= 8; ++world_size) {
    for (uint64_t step = 0; step < order.steps(); ++step) {
      Samples joined;
      for (int rank = 0; rank < world_size; ++rank) {
        const auto part = order.RankSamples(step, rank, world_size);
        const size_t least = order.StepSize(step) / static_cast<size_t>(world_size);
        EXPECT_GE(part.size(), least);
        EXPECT_LE(part.size(), least + 1);
        joined.insert(joined.end(), part.begin(), part.end());
      }
      ASSERT_EQ(joined, order.StepSamples(step)) << "world size " << world_size << ", step " << step;
    }
  }
}

// The definition of docs/data-order.md, written out with whole lists.
TEST_P(OrderOf, IsTheNextSamplesOfEachSegmentSegmentAfterSegment) {
  const auto [n, batch, segments] = GetParam();
  const Permutation permutation(n, 1, 0);
  std::vector<Samples> rest(static_cast<size_t>(segments));
  for (uint64_t k = 0; k < rest.size(); ++k) {
    for (uint64_t i = k * n / rest.size(); i < (k + 1) * n / rest.size(); ++i) {
      rest[k].push_back(permutation(static_cast<uint32_t>(i)));
    }
  }
  const auto order = this->order();
  for (uint64_t step = 0; step < order.steps(); ++step) {
    Samples expected;
    for (auto& segment : rest) {
      const auto take =
          static_cast<ptrdiff_t>(std::min(segment.size(), static_cast<size_t>(batch / segments)));
      expected.insert(expected.end(), segment.begin(), segment.begin() + take);
      segment.erase(segment.begin(), segment.begin() + take);
    }
    ASSERT_EQ(order.StepSamples(step), expected) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, OrderOf,
                         testing::Values(std::tuple(1U, 1, 1), std::tuple(1U, 8, 4), std::tuple(3U, 8, 8),
                                         std::tuple(64U, 8, 4), std::tuple(100U, 8, 1),
                                         std::tuple(101U, 12, 4), std::tuple(1003U, 32, 8),
                                         std::tuple(999U, 36, 6), std::tuple(1000U, 7, 7),
                                         std::tuple(65U, 64, 16)));

// Shards of uneven sizes, some empty: the same promises as for single files.
class ShardedOrderOf : public testing::TestWithParam<int> {
 protected:
  static constexpr std::array<uint32_t, 7> kShards = {5000, 1, 9000, 0, 12001, 40, 3958};
  static OrderOptions Options(int segments, uint32_t epoch = 0) {
    return {.seed = 3,
            .epoch = epoch,
            .samples = 30000,
            .global_batch = 64,
            .segments = segments,
            .shards = kShards};
  }
  static Samples Epoch(const OrderOptions& options) {
    const auto order = EpochOrder::Create(options).value();
    Samples all;
    for (uint64_t step = 0; step < order.steps(); ++step) {
      const auto list = order.StepSamples(step);
      all.insert(all.end(), list.begin(), list.end());
    }
    return all;
  }
};

TEST_P(ShardedOrderOf, AnEpochHasEachSampleOnce) {
  Samples all = Epoch(Options(GetParam()));
  EXPECT_NE(all, Epoch(Options(GetParam(), 1)));
  std::ranges::sort(all);
  Samples expected(30000);
  std::iota(expected.begin(), expected.end(), 0U);
  EXPECT_EQ(all, expected);
}

TEST_P(ShardedOrderOf, WhatIsReadTogetherLiesTogether) {
  const auto options = Options(GetParam());
  const ShardedOrder order(options);
  const Permutation shard_at(kShards.size(), 3, 0, Purpose::kShards);
  std::vector<uint32_t> place(30000);  // of each sample, were the shards read one after the other
  uint32_t next = 0;
  for (uint32_t i = 0; i < kShards.size(); ++i) {
    const uint32_t shard = shard_at(i);
    const uint32_t first = std::accumulate(kShards.begin(), kShards.begin() + shard, 0U);
    for (uint32_t k = 0; k < kShards[shard]; ++k) place[first + k] = next++;
  }
  uint64_t moved = 0;
  for (uint32_t position = 0; position < 30000; ++position) {
    const auto distance =
        std::abs(static_cast<int64_t>(place[order(position)]) - static_cast<int64_t>(position));
    ASSERT_LT(distance, ShardedOrder::kWindow * 3 / 2);
    moved += static_cast<uint64_t>(distance);
  }
  if (GetParam() == 1) {
    EXPECT_GT(moved / 30000, ShardedOrder::kWindow / 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Segments, ShardedOrderOf, testing::Values(1, 2, 8, 64));

TEST(Order, RefusesShardsThatDoNotAddUp) {
  const std::array<uint32_t, 2> shards = {3, 4};
  EXPECT_THAT(EpochOrder::Create({.samples = 8, .shards = shards}).error().message,
              HasSubstr("the shards have 7 samples together, not 8"));
}

TEST(Order, ARunThatResumesInTheMiddleSeesTheTail) {
  Samples whole;
  for (uint64_t step = 0; step < 10; ++step) {
    for (const uint32_t sample : Order(77, 8, 2).StepSamples(step)) whole.push_back(sample);
  }
  Samples tail;
  for (uint64_t step = 4; step < 10; ++step) {
    for (const uint32_t sample : Order(77, 8, 2).StepSamples(step)) tail.push_back(sample);
  }
  EXPECT_EQ(tail, Samples(whole.begin() + 32, whole.end()));
}

TEST(Order, EpochsAndSeedsDiffer) {
  EXPECT_NE(Order(100, 50, 1, 0).StepSamples(0), Order(100, 50, 1, 1).StepSamples(0));
  EXPECT_NE(Order(100, 50, 1, 0, 1).StepSamples(0), Order(100, 50, 1, 0, 2).StepSamples(0));
}

TEST(Order, RefusesABatchThatSegmentsDoNotDivide) {
  EXPECT_THAT(EpochOrder::Create({0, 0, 10, 10, 4}).error().message,
              HasSubstr("global batch 10 is no positive multiple of segments, 4"));
  EXPECT_FALSE(EpochOrder::Create({0, 0, 10, 0, 1}).has_value());
  EXPECT_FALSE(EpochOrder::Create({0, 0, 10, 10, 0}).has_value());
}

}  // namespace
}  // namespace imgd::data
