#include "server/core/forecast.h"

#include <gmock/gmock.h>

#include "server/core/testing/plan_builder.h"
#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using testing::Contains;
using testing::HasSubstr;

std::optional<Duration> StartOf(const PlanBuilder& builder, size_t place = 0) {
  const auto start = ForecastStart(builder.cluster, builder.queue, place);
  if (!start) return std::nullopt;
  return *start - kNow;
}

TEST(Forecast, WhatFitsStartsNow) {
  EXPECT_EQ(StartOf(PlanBuilder().Node("a", 2).Queue(1, 1, 2)), Duration::zero());
}

TEST(Forecast, WhatDoesNotFitStartsWhenEnoughEnds) {
  const auto cluster = PlanBuilder().Node("a", 2, {8, 9}).Ends(8, minutes(10)).Ends(9, minutes(40));
  EXPECT_EQ(StartOf(PlanBuilder(cluster).Queue(1, 1, 1)), minutes(10));
  EXPECT_EQ(StartOf(PlanBuilder(cluster).Queue(1, 1, 2)), minutes(40));
}

TEST(Forecast, WhoComesFirstTakesWhatComesFreeFirst) {
  const auto cluster =
      PlanBuilder().Node("a", 1, {8}).Node("b", 1, {9}).Ends(8, minutes(10)).Ends(9, minutes(40));
  // For ten minutes, and the second has the same node then.
  EXPECT_EQ(StartOf(PlanBuilder(cluster).Queue(1, 1, 1).For(minutes(10)).Queue(2, 1, 1), 1), minutes(20));
  // For two hours, so that the other node is sooner.
  EXPECT_EQ(StartOf(PlanBuilder(cluster).Queue(1, 1, 1).For(hours(2)).Queue(2, 1, 1), 1), minutes(40));
  // For ever.
  EXPECT_EQ(StartOf(PlanBuilder(cluster).Queue(1, 1, 1).Queue(2, 1, 1).Queue(3, 1, 1), 2), std::nullopt);
}

TEST(Forecast, NobodyKnowsWhereAnEndIsUnknownOrANodeIsAway) {
  EXPECT_EQ(StartOf(PlanBuilder().Node("a", 1, {9}).Queue(1, 1, 1)), std::nullopt);
  EXPECT_EQ(StartOf(PlanBuilder().Node("a", 1).Away().Queue(1, 1, 1)), std::nullopt);
  EXPECT_EQ(StartOf(PlanBuilder().Node("a", 1).Queue(1, 2, 1)), std::nullopt);
}

TEST(Forecast, NobodyLooksThroughMoreThanAMillionPairsOfAJobAndANode) {
  PlanBuilder builder;
  for (int i = 0; i < 2'000; ++i) builder.Node(fmt::format("n{:04}", i), 1);
  for (uint64_t job = 1; job <= 501; ++job) builder.Queue(job, 1, 1);
  EXPECT_EQ(StartOf(builder, 499), Duration::zero());
  EXPECT_EQ(StartOf(builder, 500), std::nullopt);
  const auto all = ForecastStarts(builder.cluster, builder.queue, 1'000);
  ASSERT_EQ(all.size(), 501u);
  EXPECT_EQ(all[499], kNow);
  EXPECT_EQ(all[500], std::nullopt);
}

TEST(Forecast, WhatNeverFitsIsInNobodysWay) {
  EXPECT_EQ(StartOf(PlanBuilder().Node("a", 1).Queue(1, 5, 1).Queue(2, 1, 1), 1), Duration::zero());
}

TEST(Forecast, JobsOfALowerPriorityMakeRoom) {
  EXPECT_EQ(StartOf(PlanBuilder().Node("a", 1, {9}).Holds(9, 0).Queue(1, 1, 1, 5)), minutes(2));
}

TEST(Forecast, TheyMakeRoomOnceThatIsEnough) {
  auto builder = PlanBuilder().Node("a", 2, {8, 8}).Node("b", 2, {9}).Holds(8, 0);
  builder.cluster.holders[JobId(9)] = {.priority = 5};
  builder.Ends(8, hours(2)).Ends(9, minutes(5)).Queue(1, 2, 2, 5);
  EXPECT_EQ(StartOf(builder), minutes(5)) << "job 9 has ended then, and job 8 is asked";
}

TEST(Forecast, NobodyMakesRoomForOneThatIsNotTheFirstToWaitForTheNodes) {
  auto builder =
      PlanBuilder().Node("a", 1, {8}).Is("H100").Node("b", 1, {9}).Is("A100").Holds(8, 9).Holds(9, 0);
  builder.Queue(1, 1, 1, 6).Asks({.models = {"H100"}});
  EXPECT_EQ(StartOf(PlanBuilder(builder).Queue(2, 1, 1, 5).Asks({.models = {"A100"}}), 1), minutes(2));
  EXPECT_EQ(StartOf(PlanBuilder(builder).Queue(2, 1, 1, 5), 1), std::nullopt) << "job 8 may run for ever";
  builder.Ends(8, minutes(10));
  EXPECT_EQ(StartOf(PlanBuilder(builder).Queue(2, 1, 1, 5), 1), minutes(12));
}

TEST(Forecast, ARetryIsNotBeforeItsTime) {
  EXPECT_EQ(StartOf(PlanBuilder().Node("a", 1).Queue(1, 1, 1).Retries()), std::chrono::seconds(1));
}

TEST(Forecast, AQuotaEndsNobodyKnowsWhen) {
  PlanBuilder builder;
  builder.Node("a", 4).Queue(1, 1, 4);
  builder.queue.back().accounts = {"user ada"};
  builder.cluster.allowances["user ada"] = {.devices = 2};
  EXPECT_EQ(StartOf(builder), std::nullopt);
}

TEST(Forecast, WhatAQuotaKeepsForAnEarlierJobIsNotALaterOnes) {
  PlanBuilder builder;
  builder.Node("a", 4, {9, 9}).Queue(1, 1, 3).Queue(2, 1, 1);
  for (auto& job : builder.queue) job.accounts = {"user ada"};
  builder.cluster.allowances["user ada"] = {.devices = 4, .used = 2};
  const auto waits = Waits(builder.Make());
  ASSERT_THAT(waits, Contains(std::pair(uint64_t{2}, ReasonCode::kQuota)));
  builder.queue[1].code = ReasonCode::kQuota;
  EXPECT_EQ(StartOf(builder, 1), std::nullopt);
}

TEST(Forecast, AWholeNodeCountsWithAllItsDevices) {
  PlanBuilder builder;
  builder.Node("a", 4).Node("b", 4).Queue(1, 1, 1).Asks({.whole_nodes = true}).Queue(2, 1, 1);
  for (auto& job : builder.queue) job.accounts = {"user ada"};
  builder.cluster.allowances["user ada"] = {.devices = 4};
  EXPECT_EQ(StartOf(builder), Duration::zero());
  EXPECT_EQ(StartOf(builder, 1), std::nullopt);
}

TEST(Forecast, AWholeNodeThatItsQuotaIsTooSmallForIsNotItsOwn) {
  PlanBuilder builder;
  builder.Node("a", 8).Node("b", 4, {9}).Ends(9, minutes(10)).Queue(1, 1, 1).Asks({.whole_nodes = true});
  builder.queue[0].accounts = {"user ada"};
  builder.cluster.allowances["user ada"] = {.devices = 4};
  EXPECT_EQ(StartOf(builder), minutes(10));
}

TEST(Forecast, AnElasticJobTakesAsManyNodesAsThereAre) {
  const auto cluster = PlanBuilder().Node("a", 1).Node("b", 1).Node("c", 1);
  const auto elastic = PlanBuilder(cluster).Queue(1, 1, 1).UpTo(2).For(minutes(10));
  EXPECT_EQ(StartOf(PlanBuilder(elastic).Queue(2, 1, 1), 1), Duration::zero());
  EXPECT_EQ(StartOf(PlanBuilder(elastic).Queue(2, 2, 1), 1), minutes(10));
}

TEST(Prospect, OfOneThatAQuotaKeepsWaitingNobodyKnowsTheStart) {
  PlanBuilder builder;
  builder.Node("a", 4, {9, 9}).Queue(1, 1, 3);
  builder.queue.back().accounts = {"user ada"};
  builder.cluster.allowances["user ada"] = {.devices = 4, .used = 2};
  QueuedJob job{.nodes = 1, .ranks_per_node = 1};
  job.accounts = {"user ada"};
  const auto prospect = ProspectOf(builder.cluster, builder.queue, job);
  EXPECT_EQ(prospect.code, ReasonCode::kQuota);
  EXPECT_EQ(prospect.start, std::nullopt);
}

TEST(Prospect, OfOneThatFitsIsWhereItGoes) {
  const auto builder = PlanBuilder().Node("a", 2).Node("b", 2);
  const auto prospect = ProspectOf(builder.cluster, {}, {.nodes = 2, .ranks_per_node = 2});
  EXPECT_EQ(prospect.code, ReasonCode::kPlaced);
  EXPECT_EQ(prospect.text, "it would start at once, on a, b");
  EXPECT_EQ(prospect.start, kNow);
}

TEST(Prospect, OfOneThatWaitsIsWhyAndUntilWhen) {
  auto builder = PlanBuilder().Node("a", 2, {8, 9}).Ends(8, minutes(10)).Ends(9, minutes(40));
  builder.cluster.job_names = {{JobId(8), "rn50-a"}, {JobId(9), "rn50-b"}};
  builder.cluster.estimated = {JobId(8)};
  const auto prospect = ProspectOf(builder.cluster, {}, {.nodes = 1, .ranks_per_node = 2});
  EXPECT_EQ(prospect.code, ReasonCode::kWaitsForDevices);
  EXPECT_EQ(
      prospect.text,
      "it would wait: needs 1 node with 2 free devices each; 0 are free; job 8 (rn50-a) holds a and ends "
      "in about 10 min; job 9 (rn50-b) holds a and ends in 40 min at the latest; it can start in about 40 "
      "min; position 1 in the queue");
  EXPECT_EQ(prospect.start, kNow + minutes(40));
}

TEST(Prospect, ComesAfterThoseOfItsPriority) {
  auto builder = PlanBuilder().Node("a", 1, {9}).Ends(9, minutes(10)).Queue(7, 1, 1).For(minutes(5));
  EXPECT_EQ(ProspectOf(builder.cluster, builder.queue, {.ranks_per_node = 1}).start, kNow + minutes(15));
  const auto first = ProspectOf(builder.cluster, builder.queue, {.priority = 1, .ranks_per_node = 1});
  EXPECT_EQ(first.start, kNow + minutes(10));
  EXPECT_THAT(first.text, HasSubstr("position 1"));
}

TEST(Prospect, WhoWaitsForItsRetryIsAheadOfIt) {
  auto builder = PlanBuilder().Node("a", 1, {7}).Queue(7, 1, 1).Retries();
  builder.queue[0].name = "rn50";
  builder.cluster.retrying = {JobId(7)};
  EXPECT_THAT(ProspectOf(builder.cluster, builder.queue, {.ranks_per_node = 1}).text,
              HasSubstr("position 2, behind job 7 (rn50)"));
}

TEST(Prospect, WhatIsKeptForARetryCountsForItsQuota) {
  CoreSettings settings;
  settings.quotas.user.devices = 1;
  TestCluster cluster(settings);
  cluster.Join("a", 2);
  const JobId retries = cluster.Submit("rn50");
  cluster.BringUp(retries);
  cluster.Failed(retries, {.rank = 0, .message = "label 1000"});
  cluster.Ends("a", retries, {ExitCode(0, 1)});
  ASSERT_EQ(cluster.Job(retries).reason.code, ReasonCode::kBackoff);
  const Snapshot snapshot = cluster.reactor().MakeSnapshot(cluster.now());
  const auto& queue = cluster.reactor().state().queue();
  QueuedJob job;
  job.accounts = {"user ada"};
  EXPECT_EQ(ProspectOf(snapshot, queue, job).code, ReasonCode::kQuota);
  EXPECT_EQ(ForecastLater(snapshot, queue, job), std::nullopt);
  job.accounts = {"user bob"};
  EXPECT_EQ(ProspectOf(snapshot, queue, job).code, ReasonCode::kPlaced);
}

TEST(Prospect, SaysWhoWouldMakeRoom) {
  auto builder = PlanBuilder().Node("a", 1, {9}).Ends(9, minutes(30)).Holds(9, 0);
  builder.cluster.job_names = {{JobId(9), "rn50"}};
  EXPECT_THAT(ProspectOf(builder.cluster, {}, {.priority = 1, .ranks_per_node = 1}).text,
              HasSubstr("; job 9 (rn50) would be preempted for it"));
  EXPECT_THAT(ProspectOf(builder.cluster, {}, {.ranks_per_node = 1}).text, Not(HasSubstr("preempted")));
}

TEST(Prospect, OfOneThatNeverFits) {
  const auto prospect = ProspectOf(PlanBuilder().Node("a", 1).cluster, {}, {.nodes = 2, .ranks_per_node = 1});
  EXPECT_EQ(prospect.code, ReasonCode::kNeverFits);
  EXPECT_EQ(prospect.start, std::nullopt);
}

TEST(Estimates, AJobsOwnWordOfItsEndCountsForThoseWhoWait) {
  TestCluster cluster;
  cluster.Join("a", 1);
  const JobId first = cluster.Submit("rn50-a");
  cluster.BringUp(first);
  const JobId second = cluster.Submit("rn50-b");
  EXPECT_EQ(cluster.reactor().reserved().front().from, std::nullopt);
  cluster.reactor().OnTrainerProgress(cluster.RunOf(first), minutes(30), cluster.now());
  cluster.Submit("rn50-c");
  EXPECT_EQ(cluster.reactor().reserved().front().from, cluster.now().steady + minutes(30));
  EXPECT_THAT(cluster.WhyWaits(second), HasSubstr("it can start in about 30 min"));
}

}  // namespace
}  // namespace imgd
