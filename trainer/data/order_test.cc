#include "trainer/data/order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace imgd::data {
namespace {

using testing::HasSubstr;
using Samples = std::vector<uint32_t>;

EpochOrder Order(uint32_t samples, int global_batch, int segments, uint32_t epoch = 0, uint64_t seed = 1) {
  return EpochOrder::Create(seed, epoch, samples, global_batch, segments).value();
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
  EXPECT_THAT(EpochOrder::Create(0, 0, 10, 10, 4).error().message,
              HasSubstr("global batch 10 is no positive multiple of segments, 4"));
  EXPECT_FALSE(EpochOrder::Create(0, 0, 10, 0, 1).has_value());
  EXPECT_FALSE(EpochOrder::Create(0, 0, 10, 10, 0).has_value());
}

}  // namespace
}  // namespace imgd::data
