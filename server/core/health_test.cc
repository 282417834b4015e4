#include <gmock/gmock.h>

#include "server/core/explain.h"
#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct HealthOfNodes : testing::Test {
  HealthOfNodes() { cluster.Join("a", 1).Join("b", 1); }
  void IsHeard(const std::string& node, const Health& health) {
    Actions actions;
    cluster.reactor().OnHealth(NodeId(node), health, cluster.now(), actions);
    cluster.Take(std::move(actions));
  }
  /// With a heartbeat; it is time for the next one then.
  void Says(const std::string& node, const Health& health) {
    IsHeard(node, health);
    cluster.Pass(CoreSettings().heartbeat);  // it plans again
  }
  void IsIll(const std::string& node, const std::string& text) {
    Says(node, {.problems = {{ProblemKind::kDisk, text}}});
  }
  std::string NodeOf(JobId job) { return cluster.Job(job).run.parts.front().node.name(); }
  TestCluster cluster;
};

TEST_F(HealthOfNodes, ASickNodeGetsNothingNewUntilItIsWell) {
  const JobId running = cluster.Submit("running");
  cluster.BringUp(running);
  ASSERT_EQ(NodeOf(running), "a");
  cluster.Decisions();
  IsIll("a", "has 0.1 GiB free");
  IsIll("b", "has 0.2 GiB free");
  EXPECT_THAT(cluster.Decisions(),
              ElementsAre("node a is sick: it has 0.1 GiB free; nothing new is placed there",
                          "node b is sick: it has 0.2 GiB free; nothing new is placed there"));
  EXPECT_EQ(cluster.Job(running).state, JobState::kRunning) << "what runs goes on";
  const JobId next = cluster.Submit("next");
  EXPECT_EQ(cluster.Job(next).state, JobState::kQueued);
  EXPECT_THAT(cluster.WhyWaits(next), HasSubstr("node b is sick: it has 0.2 GiB free"));
  IsIll("b", "has 0.3 GiB free");
  EXPECT_THAT(cluster.Decisions(), IsEmpty()) << "another figure is no news";
  EXPECT_THAT(cluster.WhyWaits(next), HasSubstr("node b is sick: it has 0.3 GiB free"));
  Says("b", {});
  EXPECT_EQ(NodeOf(next), "b");
}

TEST_F(HealthOfNodes, AnotherProblemIsNews) {
  IsIll("a", "has 0.1 GiB free");
  cluster.Decisions();
  Says("a",
       {.problems = {{ProblemKind::kDisk, "has 0.1 GiB free"}, {ProblemKind::kGpu, "has a broken GPU"}}});
  EXPECT_THAT(
      cluster.Decisions(),
      ElementsAre("node a is sick: it has 0.1 GiB free; it has a broken GPU; nothing new is placed there"));
  Says("a", {});
  EXPECT_THAT(cluster.Decisions(), ElementsAre("node a is well again"));
}

TEST_F(HealthOfNodes, AClockIsSkewedAfterThreeHeartbeatsAndNotByOneThatWasLate) {
  for (int i = 0; i < 2; ++i) Says("a", {.clock_ahead = -seconds(11)});
  EXPECT_TRUE(cluster.Node("a").Usable());
  Says("a", {.clock_ahead = -seconds(9)});
  for (int i = 0; i < 2; ++i) Says("a", {.clock_ahead = -seconds(11)});
  EXPECT_TRUE(cluster.Node("a").Usable()) << "not in a row";
  Says("a", {.clock_ahead = -seconds(12)});
  EXPECT_EQ(ExplainNode(cluster.Node("a")), "is sick: it has a clock that is 12 s behind imgd's");
  Says("a", {});
  EXPECT_TRUE(cluster.Node("a").Usable());
}

TEST_F(HealthOfNodes, HeartbeatsThatWaitedAndComeAllAtOnceAreNoSkewedClock) {
  cluster.Decisions();
  for (const int late : {20, 17, 14, 11}) IsHeard("a", {.clock_ahead = -seconds(late)});
  cluster.Pass(CoreSettings().heartbeat);
  EXPECT_TRUE(cluster.Node("a").Usable());
  EXPECT_THAT(cluster.Decisions(), IsEmpty());
}

TEST_F(HealthOfNodes, AClockThatIsSkewedWhenTheNodeJoinsIsSoAtOnceAndUntilOneHeartbeatIsRight) {
  Actions actions;
  const NodeHello hello{.node = NodeId("c"),
                        .agent_id = "agent-of-c",
                        .devices = {{.index = 0, .model = "cpu"}},
                        .health = {.clock_ahead = seconds(3600)}};
  ASSERT_TRUE(cluster.reactor().OnAgentHello(hello, 77, cluster.now(), actions));
  cluster.Take(std::move(actions));
  EXPECT_EQ(ExplainNode(cluster.Node("c")), "is sick: it has a clock that is 3600 s ahead of imgd's");
  Says("c", {.clock_ahead = seconds(3600)});
  EXPECT_FALSE(cluster.Node("c").Usable());
  Says("c", {.clock_ahead = seconds(1)});
  EXPECT_TRUE(cluster.Node("c").Usable());
}

TEST_F(HealthOfNodes, ClocksMayBeLeftOut) {
  cluster = TestCluster({.most_skew = Duration::zero()});
  cluster.Join("a", 1);
  for (int i = 0; i < 5; ++i) Says("a", {.clock_ahead = seconds(3600)});
  EXPECT_TRUE(cluster.Node("a").Usable());
}

TEST_F(HealthOfNodes, NothingIsReservedOnASickNode) {
  const JobId first = cluster.Submit("first", {.nodes = 2});
  cluster.BringUp(first);
  IsIll("a", "has 0.1 GiB free");
  const JobId big = cluster.Submit("big", {.nodes = 2});
  cluster.Pass(seconds(1));
  EXPECT_TRUE(cluster.reactor().reserved().empty()) << "nobody knows when it is well again";
  cluster.Complete(first);
  EXPECT_EQ(cluster.Job(big).state, JobState::kQueued);
  Says("a", {});
  EXPECT_EQ(cluster.Job(big).state, JobState::kStarting);
}

}  // namespace
}  // namespace imgd
