// What many jobs are told at once, and what many nodes are asked.
#include "server/core/explain.h"

#include <gmock/gmock.h>

#include "server/core/testing/plan_builder.h"

namespace imgd {
namespace {

using testing::ElementsAre;

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

}  // namespace
}  // namespace imgd
