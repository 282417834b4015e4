#include "server/core/growth.h"

#include <gmock/gmock.h>

#include "server/core/testing/plan_builder.h"

namespace imgd {
namespace {

using std::chrono::minutes;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST(Elastic, AGangStartsWithWhatThereIs) {
  auto builder = PlanBuilder().Node("a", 1).Node("b", 1, {9}).Node("c", 1).Node("d", 1);
  EXPECT_THAT(Where(PlanBuilder(builder).Queue(1, 2, 1).UpTo(8).Make().starts.at(0)),
              ElementsAre("a:0@0", "c:0@1", "d:0@2"));
  EXPECT_THAT(PlanBuilder(builder).Queue(1, 1, 1).UpTo(2).Make().starts.at(0).parts, SizeIs(2));
  const auto plan = PlanBuilder(builder).Queue(1, 4, 1).UpTo(8).Make();
  EXPECT_THAT(plan.starts, IsEmpty());
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(1U, ReasonCode::kWaitsForDevices)));
  EXPECT_THAT(plan.reserved.front().parts, SizeIs(4)) << "what it needs, not what it would take";
}

TEST(Elastic, WhatIsForThoseBeforeItIsNotTaken) {
  auto builder = PlanBuilder().Node("a", 1).Node("b", 1).Node("c", 1).Node("d", 1);
  const auto plan = PlanBuilder(builder).Queue(1, 3, 1).Queue(2, 1, 1).UpTo(8).Make();
  ASSERT_THAT(plan.starts, SizeIs(2));
  EXPECT_THAT(plan.starts[1].parts, SizeIs(1));

  auto busy = PlanBuilder().Node("a", 2, {9}).Node("b", 2).Node("c", 1);
  const auto beside = busy.Queue(1, 2, 2).Queue(2, 1, 1).UpTo(3).Make();
  ASSERT_FALSE(beside.reserved.empty());
  ASSERT_THAT(beside.starts, SizeIs(1));
  EXPECT_THAT(Where(beside.starts[0]), ElementsAre("c:0@0"));
}

TEST(Elastic, ItTakesWhatComesBeforeOthers) {
  const auto plan = PlanBuilder().Node("a", 1).Node("b", 1).Queue(1, 1, 1).UpTo(2).Queue(2, 1, 1).Make();
  ASSERT_THAT(plan.starts, SizeIs(1));
  EXPECT_THAT(plan.starts[0].parts, SizeIs(2));
}

TEST(Elastic, AQuotaBoundsItsSize) {
  auto builder = PlanBuilder().Node("a", 1).Node("b", 1).Node("c", 1).Node("d", 1).Queue(1, 2, 1).UpTo(4);
  builder.queue.back().accounts = {"user ada"};
  builder.cluster.allowances["user ada"] = {.devices = 4, .used = 1};
  const Placement placed = builder.Make().starts.at(0);
  EXPECT_THAT(placed.parts, SizeIs(3));
  ASSERT_TRUE(placed.quota_left);
  EXPECT_EQ(placed.quota_left->account, "user ada");
  EXPECT_EQ(placed.quota_left->devices, 0u);
  builder.cluster.allowances["user ada"].used = 3;
  EXPECT_THAT(Waits(builder.Make()), ElementsAre(std::pair(1U, ReasonCode::kQuota)));
}

TEST(Elastic, WhatIsKeptForItsOwnersOtherJobsIsOfTheQuotaToo) {
  auto builder = PlanBuilder().Node("a", 2, {9}).Node("b", 2).Node("c", 1).Node("d", 1);
  builder.Queue(1, 2, 2).Queue(2, 1, 1).UpTo(3);
  for (auto& job : builder.queue) job.accounts = {"user ada"};
  builder.cluster.allowances["user ada"] = {.devices = 5};
  const Placement bounded = builder.Make().starts.at(0);
  EXPECT_THAT(bounded.parts, SizeIs(1));
  EXPECT_EQ(bounded.quota_left.value().devices, 0u);
  builder.cluster.allowances["user ada"].devices = 9;
  const Placement larger = builder.Make().starts.at(0);
  EXPECT_THAT(larger.parts, SizeIs(2)) << "no more are free";
  EXPECT_EQ(larger.quota_left.value().devices, 3u);
}

TEST(Elastic, OneGroupOfNodesThatShareTheFolder) {
  auto builder = PlanBuilder().Node("a", 1).Node("b", 1).Node("c", 1).Queue(1, 1, 1).UpTo(3);
  builder.queue.back().folder = "/ckpt";
  for (auto& node : builder.cluster.nodes) node.folders = Sees(node.id == NodeId("a") ? "x" : "y");
  EXPECT_THAT(Where(builder.Make().starts.at(0)), ElementsAre("b:0@0", "c:0@1"));
}

/// Job 1 with a rank on each of its nodes, and who waits.
struct FindingGrowth : testing::Test {
  FindingGrowth() { cluster.Node("b", 1, {1}).Node("c", 1, {1}); }
  std::vector<std::string> Find(uint32_t most = 8) {
    job.max_nodes = most;
    const auto gang =
        Growth(cluster.cluster, cluster.queue, {})
            .Find(job, {{.node = NodeId("b"), .devices = {0}}, {.node = NodeId("c"), .devices = {0}}});
    return gang ? Where({.job = JobId(1), .parts = *gang}) : std::vector<std::string>();
  }
  PlanBuilder cluster;
  QueuedJob job{.id = JobId(1), .nodes = 2, .accounts = AccountNames{"user ada"}};
};

TEST_F(FindingGrowth, ItKeepsWhatItHasAndTakesWhatIsFree) {
  EXPECT_THAT(Find(), IsEmpty());
  cluster.Node("d", 2, {9}).Node("e", 1, {9}).Node("f", 1).Node("g", 1).Away();
  EXPECT_THAT(Find(), ElementsAre("b:0@0", "c:0@1", "d:1@2", "f:0@3"));
  EXPECT_THAT(Find(3), ElementsAre("b:0@0", "c:0@1", "d:1@2"));
}

TEST_F(FindingGrowth, ThePlacesOfItsRanksAreInTheOrderOfNodes) {
  PlanBuilder other;
  other.Node("a", 1).Node("b", 1, {1}).Node("c", 1, {1});
  cluster = other;
  EXPECT_THAT(Find(), ElementsAre("a:0@0", "b:0@1", "c:0@2"));
}

TEST_F(FindingGrowth, TheNearestFirst) {
  PlanBuilder near;
  near.Node("b", 1, {1}).Is("x", 1, {{"zone", "2"}}).Node("c", 1, {1}).Is("x", 1, {{"zone", "2"}});
  near.Node("d", 1).Is("x", 1, {{"zone", "1"}}).Node("e", 1).Is("x", 1, {{"zone", "2"}});
  cluster = near;
  EXPECT_THAT(Find(3), ElementsAre("b:0@0", "c:0@1", "e:0@2"));
  EXPECT_THAT(Find(4), ElementsAre("d:0@0", "b:0@1", "c:0@2", "e:0@3"));
}

TEST_F(FindingGrowth, NotWhatSomebodyWhoWaitsCouldUse) {
  cluster.Node("d", 1).Is("T4").Node("e", 1).Is("H100").Queue(2, 2, 1).Asks({.models = {"H100"}});
  cluster.Node("f", 1).Is("H100").Away();
  EXPECT_THAT(Find(), ElementsAre("b:0@0", "c:0@1", "d:0@2"));
  cluster.Queue(3, 1, 1);
  EXPECT_THAT(Find(), IsEmpty());
}

TEST_F(FindingGrowth, WhoNeverFitsOrWaitsForLostNodesOrAQuotaHoldsUpNobody) {
  cluster.Node("d", 1);
  cluster.Queue(2, 1, 8).queue.back().code = ReasonCode::kNeverFits;
  cluster.Queue(3, 1, 1).queue.back().code = ReasonCode::kQuota;
  cluster.Node("e", 1).Away(true).Queue(4, 4, 1);
  EXPECT_THAT(Find(), SizeIs(3));
}

TEST_F(FindingGrowth, WhyAJobHasNoMoreNodesIsSaid) {
  JobRecord record;
  record.id = JobId(1);
  record.nodes = 2;
  record.max_nodes = 8;
  record.resize_interval_ms = 600'000;
  record.state = JobState::kRunning;
  record.run.parts = {{.node = NodeId("b"), .devices = {0}}, {.node = NodeId("c"), .devices = {0}}};
  cluster.cluster.now = Instant{} + std::chrono::hours(1);
  const auto why = [&] { return ExplainSize(record, cluster.cluster, cluster.queue); };
  EXPECT_EQ(why(), "has 2 of at most 8 nodes: no other node has 1 free device");
  record.needs = Needs{.labels = {{"zone", {"a"}}}};
  cluster.Node("d", 1).Is("x", 1, {{"zone", "b"}}).Node("e", 1).Is("x", 1, {{"zone", "a"}}).Away();
  cluster.cluster.nodes.back().why_not = "is drained by ada: bad fan";
  EXPECT_EQ(why(),
            "has 2 of at most 8 nodes: no other node has 1 free device, labelled zone=a; node e is "
            "drained by ada: bad fan");
  record.needs = {};
  EXPECT_EQ(why(), "has 2 of at most 8 nodes: more have just come free, and it soon goes on with them");
  record.run.held_since = cluster.cluster.now - std::chrono::minutes(6);
  EXPECT_EQ(why(), "has 2 of at most 8 nodes: it may grow in 4 min (resize_interval)");
  record.run.held_since = {};
  cluster.Queue(9, 3, 1);
  EXPECT_EQ(why(), "has 2 of at most 8 nodes: what is free is for jobs that wait");
  record.max_nodes = 2;
  EXPECT_EQ(why(), "");
}

TEST_F(FindingGrowth, NotAboveAQuotaNorWhileSomebodyWaitsForIt) {
  cluster.Node("d", 1).Node("e", 1);
  cluster.cluster.allowances["user ada"] = {.devices = 3, .used = 2};
  EXPECT_THAT(Find(), SizeIs(3));
  const auto waits = [this](ReasonCode code, uint32_t nodes) {
    cluster.Queue(2, nodes, 1).queue.back().code = code;
    cluster.queue.back().accounts = {"user ada"};
    cluster.queue.back().name = "big";
  };
  waits(ReasonCode::kNeverFits, 1);
  waits(ReasonCode::kQuota, 4);
  EXPECT_THAT(Find(), SizeIs(3)) << "neither of them can start as things are";
  waits(ReasonCode::kQuota, 3);
  EXPECT_THAT(Find(), IsEmpty());
  EXPECT_EQ(Growth(cluster.cluster, cluster.queue, {}).WhyNot(job, {{.node = NodeId("b"), .devices = {0}}}),
            "what user ada's quota leaves is for job 2 (big), which waits");
}

TEST_F(FindingGrowth, AWholeNodeThatAQuotaDoesNotAllowIsSaidToBeOneForIt) {
  job.needs = Needs{.whole_nodes = true};
  job.max_nodes = 8;
  const std::vector<Part> parts = {{.node = NodeId("b"), .devices = {0}},
                                   {.node = NodeId("c"), .devices = {0}}};
  const auto why = [&] { return Growth(cluster.cluster, cluster.queue, {}).WhyNot(job, parts); };
  cluster.Node("d", 4);
  cluster.cluster.allowances["user ada"] = {.devices = 5, .used = 2};
  EXPECT_THAT(Find(), IsEmpty());
  EXPECT_EQ(why(), "user ada's quota leaves it no more devices");
  cluster.cluster.allowances["user ada"].devices = 6;
  EXPECT_THAT(Find(), SizeIs(3));
  cluster.cluster.nodes[0].usable = false;
  EXPECT_EQ(why(), "one of its own nodes takes nothing new");
}

TEST_F(FindingGrowth, OnlyWhereItsCheckpointsAreAndNotWhereItWasMovedOff) {
  cluster.Node("d", 1).Node("e", 1).Node("f", 1);
  job.folder = "/ckpt";
  for (auto& node : cluster.cluster.nodes) node.folders = Sees(node.id == NodeId("e") ? "other" : "fs");
  job.avoid = {NodeId("f")};
  EXPECT_THAT(Find(), ElementsAre("b:0@0", "c:0@1", "d:0@2"));
}

TEST_F(FindingGrowth, NotWhileOneOfItsNodesIsAway) {
  cluster.Node("d", 1);
  cluster.cluster.nodes[0].usable = false;
  EXPECT_THAT(Find(), IsEmpty());
}

TEST(Elastic, OfItsOwnThoseThatItLeavesAreNamed) {
  const auto on = [](const char* node) { return Part{.node = NodeId(node)}; };
  EXPECT_EQ(ExplainGrowth({on("a"), on("b")}, {on("a"), on("c"), on("d")}),
            "3 nodes instead of 2: c and d are free; without b, which can't be used");
}

}  // namespace
}  // namespace imgd
