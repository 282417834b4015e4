#include "server/core/shares.h"

#include <gmock/gmock.h>

#include "server/core/explain.h"
#include "server/core/testing/plan_builder.h"
#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using std::chrono::hours;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kHourUs = 3'600'000'000;

TEST(Usage, HalfOfItIsLeftAfterEachHalfLife) {
  Usage usage;
  usage.Add(800, {0}, hours(10));
  EXPECT_DOUBLE_EQ(usage.At({10 * kHourUs}, hours(10)), 400);
  usage.Add(100, {20 * kHourUs}, hours(10));
  EXPECT_DOUBLE_EQ(usage.At({20 * kHourUs}, hours(10)), 300);
  EXPECT_DOUBLE_EQ(usage.At({0}, hours(10)), 300) << "the clock was set back";
}

TEST(Usage, ATurnIsOneLaterEachTimeThatItDoubles) {
  EXPECT_EQ(TurnOf(0), 0u);
  EXPECT_EQ(TurnOf(3599), 0u);
  EXPECT_EQ(TurnOf(3600), 1u);
  EXPECT_EQ(TurnOf(7199), 1u);
  EXPECT_EQ(TurnOf(7200), 2u);
  EXPECT_EQ(TurnOf(3600.0 * 1000), 10u);
}

TEST(Shares, ThoseThatAreNotNamedHaveOne) {
  const Shares shares{.users = {{"ada", 2}}, .projects = {{"ada", 3}}};
  EXPECT_EQ(shares.OfAccount("user ada"), 2);
  EXPECT_EQ(shares.OfAccount("project ada"), 3);
  EXPECT_EQ(shares.OfAccount("project "), 1);
}

TEST(Quotas, ThoseOfTheirOwnGoBeforeThoseOfAll) {
  const Quotas quotas{.user = {.devices = 4}, .users = {{"ada", {.devices = 8}}}};
  EXPECT_EQ(quotas.OfUser("ada").devices, 8u);
  EXPECT_EQ(quotas.OfUser("bob").devices, 4u);
  EXPECT_EQ(quotas.OfProject("x").devices, 0u);
}

TEST(Quotas, AJobAboveItWaitsAndHoldsUpNobody) {
  PlanBuilder builder;
  builder.Node("a", 8).Queue(1, 1, 4).Queue(2, 1, 2).Queue(3, 1, 4).Queue(4, 1, 4);
  for (auto& job : builder.queue) job.accounts = {"user ada"};
  builder.queue[3].accounts = {"user bob", "project vision"};
  builder.cluster.allowances["user ada"] = {.devices = 6};
  const auto plan = builder.Make();
  ASSERT_THAT(plan.starts, SizeIs(2));
  EXPECT_EQ(plan.starts[1].job, JobId(2)) << "6 of 6";
  EXPECT_THAT(Waits(plan),
              ElementsAre(std::pair(3, ReasonCode::kQuota), std::pair(4, ReasonCode::kWaitsForDevices)));
  EXPECT_EQ(ReservationOf(plan.reserved, JobId(3)), nullptr);
}

TEST(Quotas, ALargeJobIsNotKeptWaitingByLaterSmallOnesOfItsAccount) {
  PlanBuilder builder;
  builder.Node("a", 8, {9, 9, 9, 9}).Queue(1, 1, 4).Queue(2, 1, 1).Queue(3, 1, 1);
  builder.queue[0].accounts = builder.queue[1].accounts = {"user ada"};
  builder.queue[2].accounts = {"user bob"};
  builder.cluster.allowances["user ada"] = {.devices = 6, .used = 4};
  const auto plan = builder.Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(3));
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(1, ReasonCode::kQuota), std::pair(2, ReasonCode::kQuota)));
}

TEST(Quotas, WhatAProjectHasLeftIsNotKeptForAUserWhoHasTooLittle) {
  PlanBuilder builder;
  builder.Node("a", 8, {9, 9, 9, 9}).Queue(1, 1, 2).Queue(2, 1, 2);
  builder.queue[0].accounts = {"user ada", "project vision"};
  builder.queue[1].accounts = {"user bob", "project vision"};
  builder.cluster.allowances["user ada"] = {.devices = 4, .used = 4};
  builder.cluster.allowances["project vision"] = {.devices = 6, .used = 4};
  const auto plan = builder.Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(2));
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(1, ReasonCode::kQuota)));
}

TEST(Quotas, WhatAUserHasLeftIsKeptForAJobWhoseProjectHasTooLittle) {
  PlanBuilder builder;
  builder.Node("a", 8, {9, 9, 9, 9}).Queue(1, 1, 2).Queue(2, 1, 2);
  builder.queue[0].accounts = {"user ada", "project vision"};
  builder.queue[1].accounts = {"user ada"};
  builder.cluster.allowances["user ada"] = {.devices = 6, .used = 4};
  builder.cluster.allowances["project vision"] = {.devices = 4, .used = 3};
  const auto plan = builder.Make();
  EXPECT_THAT(plan.starts, IsEmpty());
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(1, ReasonCode::kQuota), std::pair(2, ReasonCode::kQuota)));
}

TEST(Quotas, NothingIsKeptForAJobThatFitsNowhere) {
  PlanBuilder builder;
  builder.Node("a", 4, {9}).Queue(1, 3, 1).Queue(2, 1, 1);
  for (auto& job : builder.queue) job.accounts = {"user ada"};
  builder.cluster.allowances["user ada"] = {.devices = 3, .used = 1};
  const auto plan = builder.Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(2));
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(1, ReasonCode::kNeverFits)));
}

TEST(Quotas, NothingIsKeptForAJobThatOnlyLostNodesWouldComplete) {
  PlanBuilder builder;
  builder.Node("a", 8, {9, 9, 9, 9}).Node("b", 4).Away(true).Queue(1, 2, 4).Queue(2, 1, 1);
  for (auto& job : builder.queue) job.accounts = {"user ada"};
  builder.cluster.allowances["user ada"] = {.devices = 8, .used = 4};
  const auto plan = builder.Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(2));
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(1, ReasonCode::kQuota)));
  builder.cluster.nodes[1].lost = false;
  EXPECT_THAT(builder.Make().starts, IsEmpty()) << "b is only out of reach";
}

TEST(Quotas, WhatIsReservedCountsSoThatLaterJobsDoNotPushItAboveTheQuota) {
  PlanBuilder builder;
  builder.Node("a", 4, {9, 9, 9, 9}).Is("H100").Node("b", 8).Is("cpu").Queue(1, 1, 4).Queue(2, 1, 5);
  builder.queue[0].needs = {.gpu = true};
  for (auto& job : builder.queue) job.accounts = {"user ada"};
  builder.cluster.allowances["user ada"] = {.devices = 8};
  const auto plan = builder.Make();
  EXPECT_THAT(plan.starts, IsEmpty());
  EXPECT_FALSE(plan.reserved.empty());
}

TEST(Quotas, AWholeNodeCountsWithAllItsDevices) {
  PlanBuilder builder;
  builder.Node("a", 8).Queue(1, 1, 1).Asks({.whole_nodes = true});
  builder.queue[0].accounts = {"user ada"};
  builder.cluster.allowances["user ada"] = {.devices = 7};
  EXPECT_THAT(Waits(builder.Make()), ElementsAre(std::pair(1, ReasonCode::kQuota)));
  builder.cluster.allowances["user ada"] = {.devices = 8};
  EXPECT_THAT(builder.Make().starts, SizeIs(1));
}

TEST(Quotas, WholeNodesAreTakenAndReservedAmongThoseThatAreSmallEnough) {
  PlanBuilder builder;
  builder.Node("a", 8, {9}).Node("b", 4, {9}).Node("c", 4);
  for (const uint64_t id : {1, 2}) builder.Queue(id, 1, 1).Asks({.whole_nodes = true});
  builder.queue[0].accounts = {"user ada"};
  builder.queue[1].accounts = {"user bob"};
  builder.cluster.allowances["user ada"] = {.devices = 5};
  builder.cluster.allowances["user bob"] = {.devices = 7};
  const auto plan = builder.Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].parts[0].node, NodeId("c"));
  ASSERT_FALSE(plan.reserved.empty());
  EXPECT_EQ(plan.reserved.front().job, JobId(2));
  EXPECT_EQ(plan.reserved.front().parts[0].node, NodeId("b"));
}

TEST(Quotas, WholeNodesThatAreSmallEnoughAreReservedThoughLargerOnesAreFree) {
  PlanBuilder builder;
  builder.Node("a", 8).Node("b", 4, {9}).Queue(1, 1, 1).Asks({.whole_nodes = true}).Queue(2, 1, 4);
  builder.queue[0].accounts = {"user ada"};
  builder.queue[1].accounts = {"user bob"};
  builder.cluster.allowances["user ada"] = {.devices = 6};
  const auto plan = builder.Make();
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(1, ReasonCode::kWaitsForDevices)));
  ASSERT_THAT(plan.reserved, SizeIs(1));
  EXPECT_EQ(plan.reserved[0].parts[0].node, NodeId("b"));
  ASSERT_THAT(plan.starts, SizeIs(1)) << "a is nobody's";
  EXPECT_EQ(plan.starts[0].parts[0].node, NodeId("a"));
  EXPECT_EQ(ExplainWait(builder.cluster, {builder.queue[0], ReasonCode::kWaitsForDevices, 1}),
            "needs 1 node with 1 free device each and nothing else on them, of at most 4 devices by what is "
            "left of a quota; 0 are free; job 9 holds b; position 1 in the queue");
}

TEST(Quotas, WholeNodesThatAreSmallEnoughButShareNothingKeepNothingFromLaterJobs) {
  PlanBuilder builder;
  builder.Node("a", 2).Node("b", 1).Node("c", 1);
  for (auto& node : builder.cluster.nodes) node.folders = Sees(node.id.name() == "c" ? "other" : "one");
  builder.Queue(1, 2, 1).Asks({.whole_nodes = true}).Queue(2, 2, 1);
  for (auto& job : builder.queue) {
    job.folder = "/ckpt";
    job.accounts = {"user ada"};
  }
  builder.cluster.allowances["user ada"] = {.devices = 2};
  const auto plan = builder.Make();
  ASSERT_THAT(plan.starts, SizeIs(1)) << "a and b share it, and have three devices";
  EXPECT_EQ(plan.starts[0].job, JobId(2));
}

TEST(Quotas, WhatIsLeftIsKeptForWholeNodesWithAllTheirDevices) {
  PlanBuilder builder;
  builder.Node("a", 4).Node("b", 2).Node("c", 1, {7}).Queue(1, 1, 1).Queue(2, 1, 1);
  builder.queue[0].needs = Needs{.whole_nodes = true, .labels = {{"zone", {"d"}}}};
  builder.cluster.nodes[0].kind = KindOf({}, {{"zone", "d"}});
  for (auto& job : builder.queue) job.accounts = {"user ada"};
  builder.cluster.allowances["user ada"] = {.devices = 5, .used = 2};
  EXPECT_THAT(builder.Make().starts, IsEmpty()) << "job 2 would take what job 1 waits for";
  builder.cluster.allowances["user ada"].used = 0;
  EXPECT_THAT(builder.Make().starts, SizeIs(2));
}

TEST(Quotas, WhoWaitsForDevicesAndLostItsQuotaToALaterOneSaysSo) {
  PlanBuilder builder;
  builder.Node("a", 2, {9, 9}).Is("H100").Node("b", 2).Is("cpu");
  builder.Queue(1, 1, 2)
      .Asks({.gpu = true})
      .Queue(2, 1, 2)
      .Asks({.gpu = true})
      .Queue(3, 1, 1)
      .Asks({.cpu = true});
  builder.queue[1].accounts = builder.queue[2].accounts = {"user ada"};
  builder.cluster.allowances["user ada"] = {.devices = 2};
  const auto plan = builder.Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_EQ(plan.starts[0].job, JobId(3));
  EXPECT_THAT(Waits(plan),
              ElementsAre(std::pair(1, ReasonCode::kWaitsForDevices), std::pair(2, ReasonCode::kQuota)));
}

TEST(Quotas, AWaitSaysWhatTheQuotaIsAndWhatIsHad) {
  Snapshot cluster;
  cluster.allowances["project vision"] = {.devices = 16, .used = 14};
  Waiting waiting{{.id = JobId(3), .nodes = 2, .ranks_per_node = 2}, ReasonCode::kQuota, 5};
  waiting.job.accounts = {"user ada", "project vision"};
  EXPECT_EQ(ExplainWait(cluster, waiting),
            "project vision may have 16 devices at once and has 14; it needs 4; position 5 in the queue");
  waiting.job.nodes = 10;
  EXPECT_THAT(ExplainWait(cluster, waiting), HasSubstr("it needs 20, which is more than the quota"));
  cluster.allowances["project vision"].used = 11;
  waiting.job.nodes = 2;
  EXPECT_THAT(ExplainWait(cluster, waiting),
              HasSubstr(", and what is left is kept for an earlier job of theirs"));
  waiting.job.needs = {.whole_nodes = true};
  PlanBuilder builder;
  cluster.nodes = builder.Node("a", 8).Node("b", 8).Node("c", 9).cluster.nodes;
  EXPECT_THAT(ExplainWait(cluster, waiting),
              HasSubstr("it needs 2 nodes for itself, of at most 2 devices each by what is left"));
  cluster.allowances["project vision"].used = 0;
  EXPECT_THAT(ExplainWait(cluster, waiting), HasSubstr("is kept for an earlier job of theirs"));
  cluster.nodes.erase(cluster.nodes.begin());
  EXPECT_THAT(ExplainWait(cluster, waiting),
              HasSubstr("it needs 2 nodes for itself, and too few have at most 8 devices, so that it can't"));
  cluster.nodes.push_back(builder.Node("d", 8).Away(true).cluster.nodes.back());
  EXPECT_THAT(ExplainWait(cluster, waiting),
              HasSubstr("and too few that can be used have at most 8 devices; position 5"));
}

TEST(Quotas, OfAClusterCountWhatRuns) {
  CoreSettings settings;
  settings.quotas.user.devices = 1;
  TestCluster cluster(settings);
  cluster.Join("a", 4);
  const JobId first = cluster.Submit("first");
  const JobId second = cluster.Submit("second");
  const JobId other = cluster.Submit("other", {.owner = "bob"});
  EXPECT_EQ(cluster.Job(first).state, JobState::kStarting);
  EXPECT_EQ(cluster.Job(second).reason.code, ReasonCode::kQuota);
  EXPECT_EQ(cluster.Job(other).state, JobState::kStarting);
  cluster.BringUp(first);
  cluster.Complete(first);
  EXPECT_EQ(cluster.Job(second).state, JobState::kStarting);
}

TEST(Quotas, OfJobsThatWaitRefuseTheNextOne) {
  CoreSettings settings;
  settings.quotas.user.queued = 1;
  settings.quotas.projects["vision"].queued = 1;
  TestCluster cluster(settings);
  const auto refusal = [&cluster](const std::string& owner, const std::string& project) {
    const auto may = cluster.reactor().MaySubmit({.owner = owner, .project = project});
    return may ? std::string() : may.error().message;
  };
  EXPECT_EQ(refusal("ada", ""), "");
  const JobId job = cluster.Submit("waits", {.project = "vision"});
  EXPECT_EQ(refusal("ada", ""), "user ada has as many jobs waiting as the quota allows, 1");
  EXPECT_EQ(refusal("bob", ""), "");
  EXPECT_THAT(refusal("bob", "vision"), HasSubstr("project vision has as many"));
  cluster.Restart();
  EXPECT_THAT(refusal("ada", ""), HasSubstr("as many jobs waiting")) << "after a restart too";
  cluster.Cancel(job);
  EXPECT_EQ(refusal("ada", ""), "");
}

struct FairShare : testing::Test {
  FairShare() {
    cluster.Join("a", 1);
    // Ada has the only device for five hours.
    const JobId first = cluster.Submit("first");
    cluster.BringUp(first);
    cluster.Pass(hours(5));
    early = cluster.Submit("early");
    late = cluster.Submit("late", {.owner = "bob"});
    ended = first;
  }
  TestCluster cluster;
  JobId ended, early, late;
};

TEST_F(FairShare, WhoHasHadLessGoesFirst) {
  cluster.Complete(ended);
  EXPECT_EQ(cluster.Job(late).state, JobState::kStarting);
  EXPECT_EQ(cluster.Job(early).state, JobState::kQueued);
  ASSERT_THAT(cluster.reactor().state().usage(), SizeIs(2)) << "and what has no project";
  EXPECT_NEAR(cluster.reactor().state().usage().at("ada").device_seconds, 5 * 3600, 300);
}

TEST_F(FairShare, PriorityGoesBeforeIt) {
  const JobId urgent = cluster.Submit("urgent", {.priority = 1, .preemptible = false});
  cluster.Pass(std::chrono::seconds(1));
  cluster.Wrote(ended, 10, cluster.Job(ended).generation);
  cluster.Ends("a", ended, {ExitCode(0, 11)});
  EXPECT_EQ(cluster.Job(urgent).state, JobState::kStarting);
}

TEST_F(FairShare, ItOutlivesTheDaemon) {
  cluster.Complete(ended);
  cluster.Restart();
  EXPECT_NEAR(cluster.reactor().state().usage().at("ada").device_seconds, 5 * 3600, 300);
}

TEST_F(FairShare, WhereNobodyHasHadAnythingAnyMoreAgeAloneDecides) {
  cluster.reactor().SetSettings({.half_life = Duration::zero()});
  cluster.Complete(ended);
  EXPECT_EQ(cluster.Job(early).state, JobState::kStarting);
}

TEST_F(FairShare, WhereNobodyHasHadAnythingAnyMoreTheQueueLosesThoseWhoStart) {
  cluster.reactor().SetSettings({.half_life = Duration::zero()});
  cluster.Join("b", 2);
  for (const JobId job : {early, late}) cluster.BringUp(job);
  EXPECT_THAT(cluster.reactor().state().queue(), IsEmpty());
  cluster.Complete(early);
  cluster.Complete(late);
  EXPECT_EQ(cluster.Job(early).generation, Generation(1));
  EXPECT_EQ(cluster.Job(late).generation, Generation(1));
}

TEST(FairShareOff, AgeAloneDecides) {
  TestCluster cluster({.half_life = Duration::zero()});
  cluster.Join("a", 1);
  const JobId first = cluster.Submit("first");
  cluster.BringUp(first);
  cluster.Pass(hours(5));
  const JobId early = cluster.Submit("early");
  cluster.Submit("late", {.owner = "bob"});
  cluster.Complete(first);
  EXPECT_EQ(cluster.Job(early).state, JobState::kStarting);
  EXPECT_THAT(cluster.reactor().state().usage(), IsEmpty());
}

}  // namespace
}  // namespace imgd
