#include "server/core/budgets.h"

#include <gmock/gmock.h>

#include "server/core/explain.h"
#include "server/core/testing/plan_builder.h"
#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

constexpr int64_t kSecondUs = 1'000'000;
constexpr int64_t kDayUs = 86'400 * kSecondUs;

WallTime On(int year, unsigned month, unsigned day, int64_t second = 0) {
  const std::chrono::sys_days date(std::chrono::year(year) / month / day);
  return {date.time_since_epoch().count() * kDayUs + second * kSecondUs};
}

TEST(Periods, BeginAtMidnightOnMondayAndOnTheFirstByUtc) {
  struct Row {
    Period period;
    WallTime now, from, until;
  };
  const Row rows[] = {
      {Period::kDay, On(2026, 11, 23, 86'399), On(2026, 11, 23), On(2026, 11, 24)},
      {Period::kDay, On(2026, 11, 24), On(2026, 11, 24), On(2026, 11, 25)},
      {Period::kWeek, On(2026, 11, 22, 5), On(2026, 11, 16), On(2026, 11, 23)},  // a Sunday
      {Period::kWeek, On(2026, 11, 23), On(2026, 11, 23), On(2026, 11, 30)},
      {Period::kMonth, On(2026, 11, 30, 7), On(2026, 11, 1), On(2026, 12, 1)},
      {Period::kMonth, On(2026, 12, 31), On(2026, 12, 1), On(2027, 1, 1)},
      {Period::kMonth, On(2028, 2, 29), On(2028, 2, 1), On(2028, 3, 1)},
  };
  for (const auto& row : rows) {
    const auto span = SpanAt(row.period, row.now);
    EXPECT_EQ(span.from, row.from);
    EXPECT_EQ(span.until, row.until);
  }
  EXPECT_FALSE(SpanAt(Period::kTotal, On(2026, 11, 23)).until);
}

TEST(Account, CountsInEachPeriodWhatWasUsedInIt) {
  Account account;
  account.Add(3600, 10, On(2026, 11, 30, 43'200), On(2026, 11, 30, 46'800));
  // Of four hours over midnight three are in the new day, and in the new month.
  account.Add(4 * 3600, 40, On(2026, 11, 30, 82'800), On(2026, 12, 1, 10'800));
  const WallTime now = On(2026, 12, 1, 10'800);
  EXPECT_DOUBLE_EQ(account.In(Period::kDay, now).device_seconds, 3 * 3600);
  EXPECT_DOUBLE_EQ(account.In(Period::kMonth, now).cost, 30);
  EXPECT_DOUBLE_EQ(account.In(Period::kWeek, now).cost, 50) << "the 30th was a Monday";
  EXPECT_DOUBLE_EQ(account.In(Period::kTotal, now).device_seconds, 5 * 3600);
  EXPECT_DOUBLE_EQ(account.In(Period::kDay, On(2026, 12, 2)).cost, 0);
  EXPECT_DOUBLE_EQ(account.In(Period::kDay, On(2026, 11, 30)).cost, 30) << "the clock was set back";
}

TEST(Account, AClockThatWasFarAheadKeepsNoPeriodFromBeginning) {
  Account account;
  account.Add(3600, 10, On(2027, 11, 30), On(2027, 11, 30, 3600));
  const WallTime now = On(2026, 11, 30, 3600);
  EXPECT_EQ(account.In(Period::kMonth, now), (Tally{.since = On(2026, 11, 1)}));
  account.Add(3600, 20, On(2026, 11, 30), now);
  for (const Period period : {Period::kDay, Period::kWeek, Period::kMonth})
    EXPECT_DOUBLE_EQ(account.In(period, now).cost, 20);
  EXPECT_DOUBLE_EQ(account.In(Period::kTotal, now).cost, 30);
  EXPECT_DOUBLE_EQ(account.In(Period::kMonth, On(2026, 12, 1)).cost, 0);
}

TEST(UsedUp, OfTwoTheOneThatLastsLongerIsNamed) {
  Account account;
  account.Add(7200, 5, On(2026, 11, 23), On(2026, 11, 23, 3600));
  const WallTime now = On(2026, 11, 23, 3600);
  const auto of = [&](Budget device_hours, Budget spend) {
    return UsedUpOf({.device_hours = device_hours, .spend = spend}, account, now);
  };
  EXPECT_FALSE(of({}, {}));
  EXPECT_FALSE(of({2.5, Period::kDay}, {5.5, Period::kMonth}));
  EXPECT_EQ(of({2, Period::kDay}, {5, Period::kMonth})->until, On(2026, 12, 1));
  EXPECT_TRUE(of({2, Period::kDay}, {5, Period::kMonth})->spend);
  EXPECT_FALSE(of({2, Period::kTotal}, {5, Period::kMonth})->until);
  EXPECT_EQ(of({2, Period::kWeek}, {9, Period::kMonth})->until, On(2026, 11, 30));
}

TEST(Budgets, AWaitSaysWhatWasUsedAndWhenItStartsAgain) {
  struct Row {
    UsedUp used_up;
    const char* text;
  };
  const Row rows[] = {
      {{true, 100.2, {100, Period::kMonth}, On(2026, 12, 1)},
       "user ada has spent 100.20 of 100 EUR this month; it starts again on 2026-12-01 (UTC)"},
      {{false, 8, {7.5, Period::kWeek}, On(2026, 11, 30)},
       "user ada has used 8.00 of 7.5 device-hours this week; it starts again on 2026-11-30 (UTC)"},
      {{false, 8, {8, Period::kDay}, On(2026, 11, 24)},
       "user ada has used 8.00 of 8 device-hours today; it starts again on 2026-11-24 (UTC)"},
      {{false, 0.0012, {0.001, Period::kDay}, On(2026, 11, 24)},
       "user ada has used 0.0012 of 0.001 device-hours today; it starts again on 2026-11-24 (UTC)"},
      {{true, 9, {9, Period::kTotal}, std::nullopt},
       "user ada has spent 9.00 of 9 EUR in all, which does not begin anew; the operator can give it more"},
  };
  for (const auto& row : rows) {
    Snapshot cluster{.currency = "EUR"};
    cluster.allowances["user ada"] = {.used_up = row.used_up};
    Waiting waiting{{.id = JobId(3)}, ReasonCode::kQuota, 0};
    waiting.job.accounts = {"user ada", "project vision"};
    EXPECT_EQ(ExplainWait(cluster, waiting), row.text);
  }
}

TEST(Budgets, WhoHasUsedUpWhatTheyMayHoldUpNobody) {
  PlanBuilder builder;
  builder.Node("a", 4).Queue(1, 1, 4).Queue(2, 1, 2).Queue(3, 1, 2);
  builder.queue[0].accounts = {"user ada", "project vision"};
  builder.queue[1].accounts = {"user bob", "project vision"};
  builder.queue[2].accounts = {"user ada"};
  builder.cluster.allowances["user ada"] = {.used_up = UsedUp{}};
  builder.cluster.allowances["project vision"] = {.devices = 4};
  const auto plan = builder.Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(2)) << "nothing of the project's is kept for weeks";
  EXPECT_TRUE(plan.reserved.empty());
  EXPECT_THAT(Waits(plan), ElementsAre(Pair(1, ReasonCode::kQuota), Pair(3, ReasonCode::kQuota)));
}

/// It is 2001-09-09 01:46:40, a Sunday: the day and the week end in 22 h 13 min 20 s.
struct BudgetsOfACluster : testing::Test {
  explicit BudgetsOfACluster(Quota quota = {.device_hours = {4, Period::kDay}}) {
    CoreSettings settings;
    settings.quotas.users["ada"] = quota;
    cluster.emplace(settings);
    cluster->price_per_hour = 8;
    cluster->Join("a", 4);
  }
  Tally Used(const std::string& account, Period period = Period::kDay) {
    for (const auto& use : cluster->reactor().Accounts(cluster->now())) {
      if (use.account == account) return use.used.In(period, cluster->now().wall);
    }
    return {};
  }
  std::optional<TestCluster> cluster;
};

TEST_F(BudgetsOfACluster, WhatRunsGoesOnAndTheNextOneWaitsForTheNextPeriod) {
  const JobId first = cluster->Submit("first", {.ranks = 2, .project = "vision"});
  cluster->BringUp(first);
  cluster->Pass(hours(1));
  const JobId second = cluster->Submit("second");
  EXPECT_EQ(cluster->Job(second).state, JobState::kStarting) << "2 of 4 device-hours";
  cluster->BringUp(second);
  cluster->Pass(hours(1));
  const JobId third = cluster->Submit("third");
  const JobId other = cluster->Submit("other", {.owner = "bob"});
  EXPECT_EQ(cluster->Job(first).state, JobState::kRunning);
  EXPECT_EQ(cluster->Job(third).reason.code, ReasonCode::kQuota);
  EXPECT_THAT(cluster->Job(third).reason.text,
              HasSubstr("device-hours today; it starts again on 2001-09-10"));
  EXPECT_EQ(cluster->Job(other).state, JobState::kStarting);
  cluster->Cancel(other);
  cluster->Ends("a", other, {Killed(0, 15)});
  cluster->Pass(hours(20));
  EXPECT_EQ(cluster->Job(third).state, JobState::kQueued);
  cluster->Pass(minutes(14));
  EXPECT_EQ(cluster->Job(third).state, JobState::kStarting) << "nothing else has happened";
}

TEST_F(BudgetsOfACluster, WhoUsedUpMoreThanItsQuotaKeepsNothingFromAJobOfAHigherPriority) {
  const JobId keeps = cluster->Submit("keeps", {.ranks = 4, .preemptible = false});
  cluster->BringUp(keeps);
  const JobId urgent = cluster->Submit("urgent", {.priority = 1, .owner = "bob"});
  cluster->Pass(minutes(59));
  EXPECT_EQ(cluster->Job(keeps).run.stop, StopFor::kNothing) << "3.9 of 4 device-hours";
  cluster->Pass(minutes(2));
  EXPECT_EQ(cluster->Job(keeps).run.stop, StopFor::kPreempt) << "nothing else has happened";
  cluster->Ends("a", keeps, {Killed(0, 15)});
  EXPECT_EQ(cluster->Job(urgent).state, JobState::kStarting);
  cluster->Pass(seconds(1));
  EXPECT_EQ(cluster->Job(keeps).reason.code, ReasonCode::kQuota);
}

TEST(Quotas, AJobKeepsItsDevicesOnlyWhileItsProjectIsWithinItsQuota) {
  CoreSettings settings;
  TestCluster cluster(settings);
  cluster.Join("a", 4);
  const JobId keeps = cluster.Submit("keeps", {.ranks = 4, .preemptible = false, .project = "vision"});
  cluster.BringUp(keeps);
  cluster.Submit("urgent", {.priority = 1, .owner = "bob"});
  cluster.Pass(minutes(1));
  EXPECT_EQ(cluster.Job(keeps).run.stop, StopFor::kNothing);
  settings.quotas.projects["vision"] = {.devices = 4};
  cluster.reactor().SetSettings(settings);
  cluster.Pass(std::chrono::seconds(1));
  EXPECT_EQ(cluster.Job(keeps).run.stop, StopFor::kNothing) << "it has as many as it may";
  settings.quotas.projects["vision"] = {.devices = 3};
  cluster.reactor().SetSettings(settings);
  cluster.Pass(std::chrono::seconds(1));
  EXPECT_EQ(cluster.Job(keeps).run.stop, StopFor::kPreempt);
}

TEST_F(BudgetsOfACluster, CountWhatIsHeldByThePricesOfNodes) {
  const JobId job = cluster->Submit("job", {.ranks = 2, .project = "vision"});
  cluster->BringUp(job);
  cluster->Pass(minutes(30));
  EXPECT_NEAR(Used("user ada").device_seconds, 3600, 3);
  EXPECT_NEAR(Used("project vision", Period::kTotal).cost, 2, 0.01) << "half of a node of 8 for half an hour";
  cluster->Complete(job);
  EXPECT_NEAR(cluster->Job(job).device_seconds, 3600, 3);
  EXPECT_NEAR(cluster->Job(job).cost, 2, 0.01);
  EXPECT_NEAR(Used("user ada").device_seconds, 3600, 3) << "nothing twice";
}

TEST_F(BudgetsOfACluster, AnotherPriceCountsFromThenOn) {
  const JobId job = cluster->Submit("job", {.ranks = 2});
  cluster->BringUp(job);
  cluster->Pass(minutes(59) + seconds(30));
  const double before = Used("user ada").cost;
  cluster->Leave("a");
  cluster->price_per_hour = 8000;
  cluster->Join("a", 4, {{.run = cluster->RunOf(job), .phase = RunPhase::kRunning}});
  EXPECT_NEAR(Used("user ada").cost, before, 0.01);
  cluster->Leave("a");
  cluster->Join("a", 3, {{.run = cluster->RunOf(job), .phase = RunPhase::kRunning}});
  EXPECT_NEAR(Used("user ada").cost, before, 0.01) << "two of three devices cost more than two of four";
  cluster->Pass(seconds(9));
  EXPECT_NEAR(Used("user ada").cost, before + 2.0 / 3 * 8000 * 9 / 3600, 0.5);
}

TEST_F(BudgetsOfACluster, ACrashOfTheDaemonLosesAMinuteAtMost) {
  const JobId job = cluster->Submit("job", {.ranks = 2});
  cluster->BringUp(job);
  cluster->Pass(minutes(10) + seconds(30));
  cluster->Restart();
  EXPECT_NEAR(Used("user ada").device_seconds, 2 * 630, 5);
  cluster->Join("a", 4, {{.run = cluster->RunOf(job), .phase = RunPhase::kRunning}});
  cluster->Pass(minutes(10));
  EXPECT_NEAR(cluster->reactor()
                  .state()
                  .accounts()
                  .at("user ada")
                  .In(Period::kDay, cluster->now().wall)
                  .device_seconds,
              2 * 1230, 2 * 60);
  EXPECT_NEAR(Used("user ada").device_seconds, 2 * 1230, 5);
}

TEST_F(BudgetsOfACluster, AClockThatIsAheadAtTheStartCountsForAnHourAtMost) {
  const JobId job = cluster->Submit("job", {.time_limit_ms = 3 * 3600 * 1000});
  cluster->BringUp(job);
  cluster->Pass(minutes(30));
  cluster->SetClockAhead(hours(24 * 400));
  cluster->Restart();
  cluster->Join("a", 4, {{.run = cluster->RunOf(job), .phase = RunPhase::kRunning}});
  cluster->Pass(minutes(1));
  EXPECT_EQ(cluster->Job(job).state, JobState::kRunning) << "its time_limit is not over";
  EXPECT_LE(cluster->Job(job).device_seconds, 5500);
}

TEST_F(BudgetsOfACluster, AfterAClockThatWasAheadTheNextPeriodBeginsAsEver) {
  const JobId job = cluster->Submit("job", {.ranks = 2});
  cluster->BringUp(job);
  cluster->SetClockAhead(hours(24 * 400));
  cluster->Pass(minutes(2));
  cluster->SetClockAhead(-hours(24 * 400));
  cluster->Pass(hours(2) + minutes(1));
  const JobId next = cluster->Submit("next");
  EXPECT_EQ(cluster->Job(next).reason.code, ReasonCode::kQuota);
  cluster->Pass(hours(20) + minutes(11));
  EXPECT_EQ(cluster->Job(next).state, JobState::kStarting) << "it is the day after";
}

TEST_F(BudgetsOfACluster, WhatHasHardlyAnythingIsForgotten) {
  const JobId job = cluster->Submit("job", {.owner = "bob"});
  cluster->BringUp(job);
  cluster->Pass(minutes(5));
  cluster->Complete(job);
  EXPECT_THAT(cluster->reactor().state().usage(), SizeIs(2)) << "bob, and what has no project";
  cluster->SetClockAhead(hours(24 * 401));
  cluster->Pass(hours(1) + minutes(1));
  EXPECT_THAT(cluster->reactor().state().usage(), IsEmpty());
  EXPECT_THAT(cluster->reactor().state().accounts(), IsEmpty());
}

TEST(Quotas, APausedJobCountsAsOneThatWaits) {
  CoreSettings settings;
  settings.quotas.user.queued = 1;
  TestCluster cluster(settings);
  const JobId job = cluster.Submit("paused");
  ASSERT_TRUE(cluster.Pause(job));
  EXPECT_FALSE(cluster.reactor().MaySubmit({.owner = "ada"}));
  ASSERT_TRUE(cluster.Resume(job));
  EXPECT_FALSE(cluster.reactor().MaySubmit({.owner = "ada"}));
  cluster.Cancel(job);
  EXPECT_TRUE(cluster.reactor().MaySubmit({.owner = "ada"}));
}

}  // namespace
}  // namespace imgd
