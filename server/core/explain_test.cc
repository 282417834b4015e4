// What those who wait are told, one by one and many at once, and what many nodes are asked.
#include "server/core/explain.h"

#include <gmock/gmock.h>

#include "server/core/testing/plan_builder.h"
#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(WaitTexts, AreThoseOfEachJobAlone) {
  PlanBuilder builder;
  builder.Node("a", 2, {1, 2})
      .Node("b", 2, {1})
      .Queue(10, 2, 2)
      .Queue(11, 2, 2)
      .Queue(12, 1, 2)
      .Queue(13, 2, 2);
  builder.queue.back().avoid = {NodeId("b")};
  for (auto& job : builder.queue) job.code = ReasonCode::kWaitsForDevices;
  builder.cluster.reserved = std::make_shared<const Reservations>(Reservations{
      {.job = JobId(11), .parts = {{.node = NodeId("a")}}, .from = kNow + std::chrono::minutes(5)}});
  WaitTexts texts(builder.cluster);
  for (size_t place = 0; place < builder.queue.size(); ++place) {
    const Waiting waiting = WaitingAt(builder.queue, place);
    EXPECT_EQ(texts.Of(waiting), ExplainWait(builder.cluster, waiting));
  }
}

TEST(WaitTexts, OneBeforeWhomNothingIsReservedIsNotToldThatItIs) {
  auto builder = PlanBuilder().Node("a", 1).Queue(10, 1, 1).Queue(11, 2, 1).Queue(12, 1, 1);
  for (auto& job : builder.queue) job.code = ReasonCode::kWaitsBehindJob;
  builder.cluster.reserved = std::make_shared<const Reservations>(
      Reservations{{.job = JobId(11), .place = builder.queue[1].Key(), .parts = {{.node = NodeId("a")}}}});
  WaitTexts texts(builder.cluster);
  EXPECT_THAT(texts.Of(WaitingAt(builder.queue, 0)), HasSubstr("1 is free, but those before it"));
  EXPECT_THAT(texts.Of(WaitingAt(builder.queue, 2)), HasSubstr("what is free is kept for job 11"));
}

TEST(WaitTexts, EachIsToldOfWhatIsReservedForItself) {
  auto builder = PlanBuilder().Node("a", 1, {1}).Queue(10, 1, 1).Queue(11, 1, 1);
  for (auto& job : builder.queue) job.code = ReasonCode::kWaitsForDevices;
  const auto from = [](int hours) { return kNow + std::chrono::hours(hours); };
  builder.cluster.reserved = std::make_shared<const Reservations>(
      Reservations{{.job = JobId(10), .parts = {{.node = NodeId("a")}}, .from = from(1)},
                   {.job = JobId(11), .parts = {{.node = NodeId("a")}}, .from = from(3)}});
  WaitTexts texts(builder.cluster);
  EXPECT_THAT(texts.Of(WaitingAt(builder.queue, 0)), HasSubstr("it can start in 1 h"));
  EXPECT_THAT(texts.Of(WaitingAt(builder.queue, 1)), HasSubstr("it can start in 3 h"));
}

TEST(NodesCheck, TellsOfEachNodeWhatItTellsItself) {
  PlanBuilder builder;
  builder.Node("a", 4, {0, 1}).Is("NVIDIA H100 80GB HBM3", 80, {{"zone", "x"}});
  builder.Node("b", 4).Is("cpu");
  builder.Node("c", 4, {1}).Is("NVIDIA H100 80GB HBM3", 80);
  builder.Node("d", 2);  // of no known kind
  builder.Node("e", 4).Is("NVIDIA H100 80GB HBM3", 80, {{"zone", "x"}});
  builder.cluster.nodes[4].kind = builder.cluster.nodes[0].kind;
  for (const auto& needs :
       {Needs{}, Needs{.gpu = true}, Needs{.models = {"H100"}, .labels = {{"zone", {"x"}}}},
        Needs{.whole_nodes = true}}) {
    NodesCheck check(needs);
    for (const auto& node : builder.cluster.nodes) {
      EXPECT_EQ(check.RoomFor(node), node.RoomFor(needs)) << node.id.name();
      EXPECT_EQ(check.FreeFor(node), node.FreeFor(needs)) << node.id.name();
    }
  }
}

/// Where a job was that failed in its first start there; it would be the first choice.
TEST(Scheduler, AGangKeepsOffNodesThatItAvoidsAndGoesWhereItWouldElse) {
  PlanBuilder builder;
  builder.Node("a", 2, {1}).Node("b", 2).Queue(10, 1, 1).Queue(11, 1, 1).Queue(12, 2, 1);
  builder.queue[0].avoid = {NodeId("a")};
  builder.queue[1].avoid = {NodeId("c")};
  builder.queue[2].avoid = {NodeId("b")};
  const Plan plan = builder.Make();
  ASSERT_EQ(plan.starts.size(), 2u);
  EXPECT_THAT(Where(plan.starts[0]), ElementsAre("b:0@0"));
  EXPECT_THAT(Where(plan.starts[1]), ElementsAre("a:1@0"));
  EXPECT_THAT(Waits(plan), ElementsAre(std::pair(uint64_t{12}, ReasonCode::kWaitsForDevices)));
}

TEST(Explain, AStartSaysWhatItsNodesShare) {
  TestCluster cluster;
  cluster.labels = {{"zone", "z1"}, {"fabric", "f1"}};
  cluster.Join("a", 1).Join("b", 1);
  cluster.labels = {{"zone", "z1"}, {"fabric", "f2"}};
  cluster.Join("c", 1).Join("d", 1);
  EXPECT_EQ(cluster.Job(cluster.Submit("rn50", {.nodes = 2})).reason.text,
            "placed on a, b (fabric f1); its ranks are being started");
  EXPECT_EQ(cluster.Job(cluster.Submit("rn50")).reason.text, "placed on c; its ranks are being started");
  cluster.Join("e", 1);
  EXPECT_EQ(cluster.Job(cluster.Submit("rn50", {.nodes = 2})).reason.text,
            "placed on d, e (fabric f2); its ranks are being started");
  cluster.labels = {{"zone", "z1"}};
  cluster.Join("f", 1);
  cluster.labels = {{"zone", "z1"}, {"placement_group", "p"}};
  cluster.Join("g", 1);
  EXPECT_EQ(cluster.Job(cluster.Submit("rn50", {.nodes = 2})).reason.text,
            "placed on g, f (zone z1); its ranks are being started");
}

TEST(Explain, WhoHoldsWhatAndMayNotBePreemptedIsTold) {
  TestCluster cluster;
  cluster.Join("a", 1);
  cluster.BringUp(cluster.Submit("keeps", {.preemptible = false}));
  const JobId high = cluster.Submit("high", {.priority = 5});
  EXPECT_THAT(cluster.Job(high).reason.text,
              testing::HasSubstr("job 1 (keeps) holds a and may not be preempted"));
  const JobId equal = cluster.Submit("equal");
  EXPECT_THAT(cluster.Job(equal).reason.text, testing::Not(testing::HasSubstr("preempted")));
}

TEST(Explain, OfHowManyNodesMoreTheReasonIsNotNamedIsTold) {
  TestCluster cluster;
  for (const auto* node : {"a", "b", "c", "d", "e"}) {
    cluster.Join(node, 1);
    EXPECT_TRUE(cluster.SetAside(node, false, std::string("reason ") + node));
  }
  const JobId job = cluster.Submit("rn50");
  EXPECT_THAT(cluster.Job(job).reason.text,
              testing::HasSubstr("reason c; 2 more nodes take nothing now either"));
}

TEST(Explain, WhichNodesOfAGangDoNotAnswer) {
  TestCluster cluster;
  for (const auto* node : {"a", "b", "c", "d", "e"}) cluster.Join(node, 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 5});
  cluster.BringUp(job);
  std::vector<NodeRecord> nodes;
  for (const auto& [id, node] : cluster.reactor().state().nodes()) nodes.push_back(node);
  EXPECT_EQ(ExplainSilent(cluster.Job(job), nodes), "");
  nodes[1].session = 0;
  EXPECT_EQ(ExplainSilent(cluster.Job(job), nodes),
            "node b is not connected, so that nobody knows what the job does there");
  for (auto& node : nodes) node.session = 0;
  EXPECT_THAT(ExplainSilent(cluster.Job(job), nodes),
              testing::HasSubstr("node c is not connected, 2 more nodes can't be reached either, so that"));
}

TEST(Explain, NamesWhatIsNeededWhatIsFreeAndWhoHoldsIt) {
  auto builder = PlanBuilder().Node("gpu-1", 1).Node("gpu-2", 1, {3});
  builder.cluster.job_names[JobId(3)] = "rn50-a";
  EXPECT_EQ(ExplainWait(builder.cluster,
                        {.job = {.nodes = 2}, .code = ReasonCode::kWaitsForDevices, .position = 1}),
            "needs 2 nodes with 1 free device each; 1 is free; job 3 (rn50-a) holds gpu-2; position 1 in the "
            "queue");
}

TEST(Explain, NamesNodesThatAreAway) {
  const auto builder = PlanBuilder().Node("gpu-1", 8).Away().Node("gpu-2", 8).Away().Node("gpu-3", 4).Away();
  EXPECT_THAT(
      ExplainWait(builder.cluster, {.job = {.ranks_per_node = 8}, .code = ReasonCode::kWaitsForDevices}),
      HasSubstr("0 are free; node gpu-1 is out of reach for 10 s (and so gpu-2)"));
}

TEST(Explain, OnlyWhatIsOnNodesThatSeeItsCheckpointsIsInTheWay) {
  auto builder = PlanBuilder().Node("a1", 1).Node("a2", 1, {7}).Node("b1", 1, {5}).Node("b2", 1).Away();
  for (auto& node : builder.cluster.nodes) node.folders = Sees(node.id < NodeId("b") ? "a" : "b");
  const QueuedJob job{.nodes = 2, .folder = "/ckpt", .resumes_with = NodeId("a1")};
  EXPECT_EQ(ExplainWait(builder.cluster, {.job = job, .code = ReasonCode::kWaitsForDevices, .position = 1}),
            "needs 2 nodes with 1 free device each that share /ckpt with a1; 1 is free; job 7 holds a2; "
            "position 1 in the queue");
}

TEST(Explain, WhatIsKeptOnNodesThatAreTooSmallIsNotInTheWay) {
  PlanBuilder builder;
  builder.Node("a", 4, {1, 1, 1}).Node("b", 8).Queue(10, 1, 4).Queue(11, 1, 8).Queue(12, 1, 8);
  const auto reserved = [&builder](size_t place, const char* node) {
    return Reservation{.job = builder.queue[place].id,
                       .place = builder.queue[place].Key(),
                       .parts = {{.node = NodeId(node)}}};
  };
  builder.cluster.reserved =
      std::make_shared<const Reservations>(Reservations{reserved(0, "a"), reserved(1, "b")});
  builder.queue[2].code = ReasonCode::kWaitsBehindJob;
  EXPECT_THAT(ExplainWait(builder.cluster, WaitingAt(builder.queue, 2)),
              HasSubstr("what is free is kept for job 11"));
}

TEST(Explain, NamesWhoIsJustAhead) {
  auto builder = PlanBuilder().Node("a", 1, {9}).Queue(3, 1, 1).Queue(7, 1, 1);
  builder.queue[0].name = "rn50-c";
  builder.queue[1].code = ReasonCode::kWaitsForDevices;
  EXPECT_THAT(ExplainWait(builder.cluster, WaitingAt(builder.queue, 1)),
              testing::EndsWith("; position 2, behind job 3 (rn50-c)"));
  builder.queue[0].code = ReasonCode::kWaitsForDevices;
  EXPECT_THAT(ExplainWait(builder.cluster, WaitingAt(builder.queue, 0)),
              testing::EndsWith("; position 1 in the queue"));
}

TEST(Explain, SaysWhyAGangNeverFits) {
  const auto builder = PlanBuilder().Node("gpu-1", 4).Node("gpu-2", 2);
  EXPECT_EQ(
      ExplainWait(builder.cluster,
                  {.job = {.nodes = 2, .ranks_per_node = 4}, .code = ReasonCode::kNeverFits, .position = 1}),
      "needs 2 nodes with 4 devices each, which only 1 node can give; known: 1 node with 2 devices, "
      "1 node with 4 devices; add nodes, or ask for fewer; position 1 in the queue");
}

TEST(Explain, SaysWhenTheFirstOneStartsAndForWhomDevicesAreKept) {
  auto builder = PlanBuilder().Node("gpu-1", 1).Node("gpu-2", 1, {3}).Ends(3, minutes(40)).Queue(7, 2, 1);
  builder.cluster.job_names = {{JobId(3), "rn50-a"}, {JobId(7), "rn50-b"}};
  builder.cluster.reserved = std::make_shared<const Reservations>(builder.Make().reserved);
  EXPECT_EQ(
      ExplainWait(builder.cluster,
                  {.job = {.id = JobId(7), .nodes = 2}, .code = ReasonCode::kWaitsForDevices, .position = 1}),
      "needs 2 nodes with 1 free device each; 1 is free; job 3 (rn50-a) holds gpu-2 and ends in 40 min at "
      "the latest; it can start in 40 "
      "min at the latest; position 1 in the queue");
  EXPECT_EQ(
      ExplainWait(builder.cluster,
                  {.job = {.id = JobId(8)}, .code = ReasonCode::kWaitsBehindJob, .position = 2}),
      "needs 1 node with 1 free device each; what is free is kept for job 7 (rn50-b), which comes first "
      "and can start in 40 min at the latest; position 2 in the queue");
}

TEST(Explain, EveryWaitSaysWhatIsNeededAndWhatIsFree) {
  PlanBuilder builder;
  builder.Node("a", 2).Queue(1, 1, 2).Queue(2, 1, 1);
  builder.queue[0].name = "rn50-c";
  for (const auto code : {ReasonCode::kSubmitted, ReasonCode::kPreempted, ReasonCode::kNone}) {
    builder.queue[1].code = code;
    EXPECT_EQ(
        ExplainWait(builder.cluster, WaitingAt(builder.queue, 1)),
        "needs 1 node with 1 free device each; 1 is free; who comes when is decided in a moment; position 2, "
        "behind job 1 (rn50-c)");
  }
  builder.queue[1].code = ReasonCode::kWaitsBehindJob;
  EXPECT_EQ(ExplainWait(builder.cluster, WaitingAt(builder.queue, 1)),
            "needs 1 node with 1 free device each; 1 is free, but those before it in the queue come first; "
            "position 2, "
            "behind job 1 (rn50-c)");
}

/// Jobs 1 and 2 have a node each, and job 3 waits for both.
void FillTwoNodes(TestCluster& cluster) {
  cluster.Join("a", 1).Join("b", 1);
  const JobId one = cluster.Submit("one");
  const JobId two = cluster.Submit("two");
  cluster.BringUp(one);
  cluster.BringUp(two);
  cluster.Submit("both", {.nodes = 2});
}

TEST(Explain, WhoIsPassedOverIsToldOnceForEachJobThatComesFirst) {
  TestCluster cluster;
  FillTwoNodes(cluster);
  const JobId small = cluster.Submit("small");
  cluster.Decisions();
  cluster.Complete(JobId(1));
  EXPECT_THAT(
      cluster.Decisions(),
      testing::Contains("passed over: what is free is kept for job 3 (both), which comes first; position 2"));
  EXPECT_EQ(cluster.Job(small).state, JobState::kQueued);
  cluster.Leave("a");
  cluster.Pass(std::chrono::seconds(2));
  cluster.Join("a", 1);
  cluster.Pass(std::chrono::seconds(2));
  EXPECT_THAT(cluster.Decisions(), testing::Not(testing::Contains(testing::HasSubstr("passed over"))));
}

TEST(Explain, WhoIsPassedOverIsToldAgainWhenAnotherComesFirst) {
  TestCluster cluster;
  FillTwoNodes(cluster);
  cluster.Submit("wide", {.nodes = 2});
  const JobId small = cluster.Submit("small");
  cluster.Complete(JobId(1));
  cluster.Decisions();
  ASSERT_TRUE(cluster.SetPriority(JobId(4), 5));
  EXPECT_THAT(cluster.Decisions(),
              testing::Contains("passed over: what is free is kept for job 4 (wide), which "
                                "comes first; position 3"));
  EXPECT_EQ(cluster.Job(small).state, JobState::kQueued);
}

TEST(Explain, OnlyTheFirstHundredOfTheQueueAreToldThatTheyArePassedOver) {
  TestCluster cluster;
  FillTwoNodes(cluster);
  std::vector<JobId> behind;
  for (int i = 0; i < 105; ++i) behind.push_back(cluster.Submit("small"));
  cluster.Decisions();
  cluster.Complete(JobId(1));
  std::vector<std::string> told;
  for (const auto& text : cluster.Decisions()) {
    if (text.starts_with("passed over")) told.push_back(text.substr(text.find("; ")));
  }
  ASSERT_EQ(told.size(), 99u) << "of the first hundred, all but the one that comes first";
  EXPECT_EQ(told.front(), "; position 2");
  EXPECT_EQ(told.back(), "; position 100");
  EXPECT_THAT(cluster.WhyWaits(behind.back()),
              testing::HasSubstr("what is free is kept for job 3 (both), which comes first"))
      << "who asks is told all the same";
}

}  // namespace
}  // namespace imgd
