#include "server/store/rank_times.h"

#include <gmock/gmock.h>

namespace imgd {
namespace {

using testing::SizeIs;

constexpr Generation kFirstStart{1};
constexpr Generation kSecondStart{2};

RankTimes WithSteps(uint64_t steps, uint32_t ranks) {
  RankTimes times;
  for (uint64_t step = 1; step <= steps; ++step) {
    for (uint32_t rank = 0; rank < ranks; ++rank)
      times.Add(kFirstStart, rank, step, {rank == 1 ? 0.3 : 0.2, rank == 1 ? 0.0 : 0.1, 1});
  }
  return times;
}

TEST(RankTimes, AShortRunIsThereStepByStep) {
  const auto stretches = WithSteps(3, 2).Stretches();
  ASSERT_THAT(stretches, SizeIs(3));
  EXPECT_EQ(stretches[2].first_step, 3U);
  EXPECT_EQ(stretches[2].steps, 1U);
  EXPECT_EQ(stretches[2].ranks, (std::vector<RankCell>{{0.2, 0.1, 1}, {0.3, 0.0, 1}}));
}

TEST(RankTimes, HoweverLongARunIsItsStragglerStaysInABoundedPicture) {
  const auto stretches = WithSteps(10'000, 4).Stretches();
  EXPECT_LE(stretches.size(), 128U);
  EXPECT_GE(stretches.size(), 32U);
  double steps = 0;
  for (const auto& stretch : stretches) {
    ASSERT_THAT(stretch.ranks, SizeIs(4));
    for (const auto& cell : stretch.ranks) steps += cell.steps;
    EXPECT_NEAR(stretch.ranks[1].own_seconds / stretch.ranks[1].steps, 0.3, 1e-9);
    EXPECT_NEAR(stretch.ranks[2].own_seconds / stretch.ranks[2].steps, 0.2, 1e-9);
  }
  EXPECT_EQ(steps, 40'000);
}

TEST(RankTimes, ALargeGangHasFewerStretchesAndManyStartsKeepTheNewest) {
  RankTimes large;
  for (uint64_t step = 1; step <= 100; ++step) large.Add(kFirstStart, 1023, step, {1, 0, 1});
  EXPECT_LE(large.Stretches().size(), 16U);
  RankTimes starts;
  for (uint64_t start = 1; start <= 500; ++start) starts.Add(Generation(start), 0, 7, {1, 0, 1});
  EXPECT_LE(starts.Stretches().size(), 128U);
  EXPECT_EQ(starts.Stretches().back().generation, Generation(500));
}

TEST(RankTimes, OnlyWhatChangedIsStored) {
  RankTimes times = WithSteps(3, 2);
  EXPECT_THAT(times.TakeChanges().stretches, SizeIs(3));
  times.Add(kFirstStart, 0, 3, {1, 0, 1});
  const auto changes = times.TakeChanges();
  EXPECT_FALSE(changes.all);
  EXPECT_THAT(changes.stretches, SizeIs(1));
  EXPECT_THAT(times.TakeChanges().stretches, SizeIs(0));
}

TEST(RankTimes, GoesOnFromWhatIsStored) {
  const auto stored = WithSteps(1000, 2).Stretches();
  RankTimes times(stored);
  EXPECT_EQ(times.Stretches(), stored);
  times.Add(kFirstStart, 0, 1000, {0.5, 0, 1});
  EXPECT_THAT(times.TakeChanges().stretches, SizeIs(1));
}

TEST(RankTimes, WhatALaterStartDidAgainCountsOnce) {
  RankTimes times;
  for (uint64_t step = 1; step <= 6; ++step) times.Add(kFirstStart, 0, step, {1, 0, 1});
  for (uint64_t step = 4; step <= 8; ++step) times.Add(kSecondStart, 0, step, {2, 0, 1});
  std::vector<uint64_t> firsts;
  double own = 0;
  for (const auto& stretch : WithoutRepeats(times.Stretches())) {
    firsts.push_back(stretch.first_step);
    own += stretch.ranks[0].own_seconds;
  }
  EXPECT_THAT(firsts, testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(own, 3 + 10);
}

}  // namespace
}  // namespace imgd
