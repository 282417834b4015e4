// The cluster counted.
#include "server/core/census.h"

#include <gmock/gmock.h>

#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::Pair;

Census CensusOf(TestCluster& cluster) { return TakeCensus(cluster.reactor().state()); }

/// allocated, idle, set aside, unavailable.
std::vector<uint32_t> CpuUse(TestCluster& cluster) {
  const Census census = CensusOf(cluster);
  const DeviceUse& use = census.cpu_slots;
  return {use.allocated, use.idle, use.set_aside, use.unavailable};
}

TEST(Census, EveryStateOfAJobAndAnAgentIsCountedAlsoWhereNothingIsInIt) {
  TestCluster cluster;
  EXPECT_THAT(CensusOf(cluster).jobs, ElementsAre(Pair(JobState::kQueued, 0), Pair(JobState::kStarting, 0),
                                                  Pair(JobState::kRunning, 0), Pair(JobState::kPreempting, 0),
                                                  Pair(JobState::kPaused, 0)));
  cluster.Join("a", 1);
  const JobId first = cluster.Submit("first");
  EXPECT_EQ(CensusOf(cluster).jobs[JobState::kStarting], 1u);
  cluster.BringUp(first);
  const JobId held_back = cluster.Submit("later", {.after = {cluster.After(first)}});
  cluster.Submit("waits");
  EXPECT_TRUE(cluster.Pause(cluster.Submit("paused")));
  cluster.StartedByHand("by hand", {"host"});
  Census census = CensusOf(cluster);
  EXPECT_EQ(census.jobs[JobState::kQueued], 2u) << "what waits for the first waits too";
  EXPECT_EQ(census.held_back, 1u) << "which no device would let start";
  EXPECT_EQ(census.jobs[JobState::kRunning], 2u);
  EXPECT_EQ(census.jobs[JobState::kPaused], 1u);
  EXPECT_TRUE(cluster.Cancel(held_back));
  EXPECT_EQ(CensusOf(cluster).jobs[JobState::kQueued], 1u) << "what has ended is counted nowhere";
  EXPECT_EQ(CensusOf(cluster).held_back, 0u);

  cluster.Join("b", 1);
  EXPECT_EQ(CensusOf(cluster).agents[AgentState::kReady], 2u);
  cluster.Leave("b");
  EXPECT_THAT(CensusOf(cluster).agents,
              ElementsAre(Pair(AgentState::kReady, 1), Pair(AgentState::kDisconnected, 1),
                          Pair(AgentState::kUnreachable, 0), Pair(AgentState::kLost, 0)));
  cluster.Pass(std::chrono::seconds(12));
  EXPECT_EQ(CensusOf(cluster).agents[AgentState::kUnreachable], 1u);
  cluster.Pass(std::chrono::seconds(60));
  EXPECT_EQ(CensusOf(cluster).agents[AgentState::kLost], 1u);
}

TEST(Census, EachDeviceIsInOneUseWhateverHappens) {
  TestCluster cluster;
  cluster.Join("a", 2).Join("b", 4);
  EXPECT_THAT(CpuUse(cluster), ElementsAre(0, 6, 0, 0));
  const JobId job = cluster.Submit("rn50", {.ranks = 2});
  EXPECT_THAT(CpuUse(cluster), ElementsAre(2, 4, 0, 0)) << "from the moment that it has its place";
  cluster.BringUp(job);
  const std::string its = cluster.Job(job).run.parts[0].node.name();
  EXPECT_EQ(its, "a");
  EXPECT_TRUE(cluster.SetAside("a", false));
  EXPECT_THAT(CpuUse(cluster), ElementsAre(2, 4, 0, 0)) << "what is held there is held";
  EXPECT_TRUE(cluster.SetAside("b", false));
  EXPECT_THAT(CpuUse(cluster), ElementsAre(2, 0, 4, 0));
  EXPECT_EQ(CensusOf(cluster).set_aside_by_user, 2u);
  EXPECT_TRUE(cluster.Return("b", false));
  cluster.Leave("b");
  EXPECT_THAT(CpuUse(cluster), ElementsAre(2, 0, 0, 4));
  cluster.Complete(job);
  EXPECT_THAT(CpuUse(cluster), ElementsAre(0, 0, 2, 4));
  const Census census = CensusOf(cluster);
  EXPECT_EQ(census.cpu_slots.Total(), 6u);
  EXPECT_EQ(census.gpus.Total(), 0u);
}

TEST(Census, NodesThatGoOrAreSick) {
  TestCluster cluster;
  cluster.Join("a", 1).Join("b", 1);
  Actions actions;
  cluster.reactor().OnHealth(NodeId("a"), {.problems = {{ProblemKind::kDisk, "has 0 GiB free"}}},
                             cluster.now(), actions);
  cluster.reactor().OnHealth(NodeId("b"), {.problems = {}, .notice = Notice{{}, "terminate"}}, cluster.now(),
                             actions);
  cluster.Take(std::move(actions));
  Census census = CensusOf(cluster);
  EXPECT_EQ(census.problems[ProblemKind::kDisk], 1u);
  EXPECT_EQ(census.problems[ProblemKind::kGpu], 0u);
  EXPECT_EQ(census.noticed, 1u);
  EXPECT_THAT(CpuUse(cluster), ElementsAre(0, 0, 0, 2));
}

}  // namespace
}  // namespace imgd
