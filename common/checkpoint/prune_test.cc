#include "common/checkpoint/prune.h"

#include <gmock/gmock.h>

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kDayUs = 24LL * 3600 * 1'000'000;
constexpr WallTime kToday{100 * kDayUs};

/// Checkpoints of 10 bytes each, the newest first, as a store lists them.
EndedCheckpoints Job(uint64_t id, int64_t ended_day, std::vector<uint64_t> steps) {
  EndedCheckpoints out{.job = JobId(id), .ended = {ended_day * kDayUs}};
  for (const uint64_t step : steps)
    out.checkpoints.push_back({.ref = {.generation = 1, .step = step}, .size_bytes = 10});
  return out;
}

/// "1:20": job 1's of step 20.
std::vector<std::string> Names(const std::vector<PrunedCheckpoint>& plan) {
  std::vector<std::string> out;
  for (const auto& each : plan) out.push_back(fmt::format("{}:{}", each.job, each.checkpoint.ref.step));
  return out;
}

TEST(Prune, WithoutARuleEverythingStays) {
  EXPECT_TRUE(PruneRule{}.Empty());
  EXPECT_THAT(PlanPrune({Job(1, 1, {20, 10})}, 1000, {}, kToday), IsEmpty());
}

TEST(Prune, WhatEndedLongAgoGoesAndTheNewestOfItToo) {
  const PruneRule rule{.kept_for = std::chrono::hours(30 * 24)};
  const auto plan = PlanPrune({Job(2, 80, {5}), Job(1, 60, {20, 10})}, 0, rule, kToday);
  EXPECT_THAT(Names(plan), ElementsAre("1:10", "1:20"));
  EXPECT_TRUE(plan[0].is_old);
}

TEST(Prune, WhatIsTooMuchGoesFromTheJobsThatEndedFirst) {
  const PruneRule rule{.total_bytes = 35};
  const auto ended = std::vector{Job(2, 80, {5}), Job(1, 60, {20, 10}), Job(3, 90, {7})};
  const auto plan = PlanPrune(ended, 0, rule, kToday);
  EXPECT_THAT(Names(plan), ElementsAre("1:10")) << "40 bytes are 5 too many";
  EXPECT_FALSE(plan[0].is_old);
  EXPECT_THAT(Names(PlanPrune(ended, 20, rule, kToday)), ElementsAre("1:10", "1:20", "2:5"))
      << "what others have counts";
  EXPECT_THAT(PlanPrune(ended, 0, {.total_bytes = 40}, kToday), IsEmpty());
}

TEST(Prune, WhatGoesForItsAgeIsNoLongerTooMuch) {
  const PruneRule rule{.kept_for = std::chrono::hours(30 * 24), .total_bytes = 20};
  EXPECT_THAT(Names(PlanPrune({Job(2, 80, {6, 5}), Job(1, 60, {20, 10})}, 0, rule, kToday)),
              ElementsAre("1:10", "1:20"));
}

TEST(Prune, PinnedOnesStayAndTheBestUnlessSaid) {
  auto job = Job(1, 1, {30, 20, 10});
  job.checkpoints[1].best = true;
  job.checkpoints[2].pinned = true;
  PruneRule rule{.kept_for = std::chrono::hours(1), .total_bytes = 1};
  EXPECT_THAT(Names(PlanPrune({job}, 0, rule, kToday)), ElementsAre("1:30"));
  rule.best_stays = false;
  EXPECT_THAT(Names(PlanPrune({job}, 0, rule, kToday)), ElementsAre("1:20", "1:30"));
}

}  // namespace
}  // namespace imgd
