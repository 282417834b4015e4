#include "server/core/ranking.h"

#include <gmock/gmock.h>

#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kAnHourUs = 3'600'000'000;

TEST(Aging, AStepIsGainedForEachIntervalOfWaiting) {
  EXPECT_EQ(StepsOfAge({0}, hours(24), {24 * kAnHourUs - 1}), 0);
  EXPECT_EQ(StepsOfAge({0}, hours(24), {24 * kAnHourUs}), 1);
  EXPECT_EQ(StepsOfAge({0}, hours(24), {75 * kAnHourUs}), 3);
  EXPECT_EQ(StepsOfAge({0}, Duration::zero(), {75 * kAnHourUs}), 0) << "turned off";
  EXPECT_EQ(StepsOfAge({5}, hours(24), {4}), 0) << "the clock was set back";
  EXPECT_EQ(StepsOfAge({0}, std::chrono::microseconds(1), {INT64_MAX}), 2000);
}

TEST(Aging, WhatAJobHeldDevicesForIsNoWait) {
  JobRecord job;
  job.submitted = {kAnHourUs};
  job.held_ms = 30 * 60'000;
  EXPECT_EQ(WaitsSince(job), (WallTime{kAnHourUs + kAnHourUs / 2}));
}

/// One device, which a job of priority 9 has; `low` and then others wait for it.
struct AgingOfACluster : testing::Test {
  explicit AgingOfACluster(Duration aging = hours(1)) : cluster({.aging = aging}) {
    cluster.Join("a", 1);
    first = cluster.Submit("first", {.priority = 9, .owner = "bob"});
    cluster.BringUp(first);
    low = cluster.Submit("low", {.priority = 0});
  }
  TestCluster cluster;
  JobId first, low;
};

TEST_F(AgingOfACluster, WhoHasWaitedForLongGoesBeforeAHigherPriority) {
  cluster.Pass(minutes(150));
  const JobId urgent = cluster.Submit("urgent", {.priority = 2});
  const JobId more = cluster.Submit("more", {.priority = 3});
  EXPECT_THAT(cluster.WhyWaits(low),
              HasSubstr("position 2, behind job 4 (more), with 2 more priority for its wait"));
  EXPECT_THAT(cluster.WhyWaits(urgent), Not(HasSubstr("for its wait")));
  cluster.Complete(first);
  ASSERT_EQ(cluster.Job(more).state, JobState::kStarting);
  cluster.BringUp(more);
  cluster.Complete(more);
  EXPECT_EQ(cluster.Job(low).state, JobState::kStarting) << "as urgent, and older";
}

TEST_F(AgingOfACluster, AStepIsGainedThoughNothingElseHappens) {
  cluster.Submit("urgent", {.priority = 1});
  cluster.Pass(minutes(59));
  EXPECT_THAT(cluster.WhyWaits(low), HasSubstr("position 2"));
  cluster.Pass(minutes(2));
  EXPECT_THAT(cluster.WhyWaits(low), HasSubstr("position 2")) << "urgent has gained one too";
  EXPECT_THAT(cluster.WhyWaits(low), HasSubstr("with 1 more priority for its wait"));
}

TEST_F(AgingOfACluster, WhatItHasAgedByProtectsItWhileItRuns) {
  cluster.Pass(minutes(150));
  cluster.Complete(first);
  cluster.BringUp(low);
  cluster.Submit("same", {.priority = 2});
  cluster.Pass(minutes(1));
  EXPECT_EQ(cluster.Job(low).state, JobState::kRunning);
  cluster.Submit("higher", {.priority = 3});
  cluster.Pass(minutes(1));
  EXPECT_EQ(cluster.Job(low).state, JobState::kPreempting);
}

TEST_F(AgingOfACluster, AClockThatWasAheadWhenItStartedProtectsItFromNobody) {
  cluster.SetClockAhead(hours(24));
  cluster.Complete(first);
  cluster.BringUp(low);
  cluster.SetClockAhead(-hours(24));
  cluster.Submit("higher", {.priority = 1});
  cluster.Pass(minutes(1));
  EXPECT_EQ(cluster.Job(low).state, JobState::kPreempting);
}

struct NoAging : AgingOfACluster {
  NoAging() : AgingOfACluster(Duration::zero()) {}
};

TEST_F(NoAging, PriorityAloneDecides) {
  cluster.Pass(hours(5));
  const JobId urgent = cluster.Submit("urgent", {.priority = 1});
  cluster.Complete(first);
  EXPECT_EQ(cluster.Job(urgent).state, JobState::kStarting);
}

/// Jobs of one priority that wait for one device, in the order in which they start.
std::string Order(const CoreSettings& settings, const std::vector<TestCluster::Want>& had,
                  const std::vector<TestCluster::Want>& wait) {
  TestCluster cluster(settings);
  cluster.Join("a", 1);
  for (const auto& want : had) {
    const JobId job = cluster.Submit("had", want);
    cluster.BringUp(job);
    cluster.Pass(hours(3));
    cluster.Complete(job);
  }
  JobId running = cluster.Submit("running", {.owner = "eve", .project = "other"});
  cluster.BringUp(running);
  std::map<JobId, std::string> names;
  for (const auto& want : wait) names[cluster.Submit("waits", want)] = want.owner + "@" + want.project;
  std::string order;
  for (size_t i = 0; i < wait.size(); ++i) {
    cluster.Complete(running);
    for (const auto& [id, name] : names) {
      if (!cluster.Job(id).HoldsDevices()) continue;
      order += (order.empty() ? "" : " ") + name;
      running = id;
    }
    cluster.BringUp(running);
  }
  return order;
}

TEST(Turns, FirstTheProjectThenTheUserThatHasHadLess) {
  using Want = TestCluster::Want;
  const Want ada_vision{.owner = "ada", .project = "vision"};
  const Want bob_vision{.owner = "bob", .project = "vision"};
  const Want ada_speech{.owner = "ada", .project = "speech"};
  const Want cyn{.owner = "cyn"};
  const std::vector<Want> had = {ada_vision};
  const std::vector<Want> all = {ada_vision, bob_vision, ada_speech};
  EXPECT_EQ(Order({}, had, all), "ada@speech bob@vision ada@vision");
  CoreSettings settings;
  settings.shares.projects["vision"] = 8;
  EXPECT_EQ(Order(settings, had, all), "bob@vision ada@vision ada@speech") << "its share lets it have more";
  settings.shares.users["ada"] = 8;
  EXPECT_EQ(Order(settings, had, all), "ada@vision bob@vision ada@speech");
  EXPECT_EQ(Order({}, {cyn}, {cyn, ada_speech}), "ada@speech cyn@") << "no project is one too";
}

}  // namespace
}  // namespace imgd
