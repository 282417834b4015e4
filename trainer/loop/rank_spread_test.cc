#include "trainer/loop/rank_spread.h"

#include <gtest/gtest.h>

#include <array>

namespace imgd::trainer {
namespace {

TEST(RankSpread, NamesTheRankWithTheMostWorkOfItsOwnThoughAllTakeAsLong) {
  const std::array<RankTimes, 3> ranks = {RankTimes{0.25, 0.5}, RankTimes{0.25, 0.5},
                                          RankTimes{.own = 0.7, .wait = 0.05, .input = 0.6}};
  const auto spread = SpreadOf(ranks);
  EXPECT_EQ(spread.ranks, 3);
  EXPECT_EQ(spread.slowest_rank, 2);
  EXPECT_DOUBLE_EQ(spread.own_least, 0.25);
  EXPECT_DOUBLE_EQ(spread.own_mean, 0.4);
  EXPECT_DOUBLE_EQ(spread.own_most, 0.7);
  EXPECT_DOUBLE_EQ(spread.wait_least, 0.05);
  EXPECT_DOUBLE_EQ(spread.wait_mean, 0.35);
  EXPECT_DOUBLE_EQ(spread.wait_most, 0.5);
  EXPECT_DOUBLE_EQ(spread.slowest_input, 0.6);
}

TEST(RankSpread, OneRankIsNotCompared) {
  const std::array<RankTimes, 1> alone = {RankTimes{1, 0}};
  EXPECT_EQ(SpreadOf(alone).ranks, 0);
}

}  // namespace
}  // namespace imgd::trainer
