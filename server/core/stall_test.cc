#include "server/core/stall.h"

#include <gmock/gmock.h>

#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr Instant kNoon{std::chrono::hours(12)};

/// A gang of one rank on each of three nodes, that says every second where it is.
struct Gang {
  Gang() {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      run.parts.push_back({.node = NodeId(std::string(1, static_cast<char>('a' + rank))),
                           .first_rank = rank,
                           .devices = {0}});
      nodes.push_back({.address = fmt::format("10.0.0.{}", rank)});
      pulses[rank] = {{.rank = rank,
                       .step = 7,
                       .collectives = 40,
                       .what = "all-reduce",
                       .silence_limit = seconds(15),
                       .limit = seconds(15)},
                      kNoon};
    }
  }
  RankPulse& Rank(uint32_t rank) { return pulses[rank].pulse; }
  void AllStandStillFor(Duration time) {
    for (auto& [rank, heard] : pulses) heard.pulse.still = time;
  }
  std::string Reason() const {
    const auto stall = FindStall(run, nodes, pulses, kNoon);
    return stall ? stall->trouble.text : "";
  }
  Run run;
  std::vector<PartNode> nodes;
  GangPulses pulses;
};

TEST(Stall, AGangThatMovesGoesOn) {
  Gang gang;
  EXPECT_EQ(gang.Reason(), "");
  gang.AllStandStillFor(seconds(14));
  EXPECT_EQ(gang.Reason(), "");
  gang.AllStandStillFor(seconds(60));
  gang.Rank(2).still = seconds(1);
  EXPECT_EQ(gang.Reason(), "") << "one that moves is what the others wait for";
}

TEST(Stall, ASilentProcessIsNamedWithWhereItWas) {
  Gang gang;
  gang.Rank(1).silent = seconds(15);
  gang.Rank(1).last_line = "Epoch 3";
  EXPECT_EQ(gang.Reason(),
            "rank 1 on node b is stopped: its process has given no sign of life for 15 s, at step 7, "
            "all-reduce (collective 40); its last log line: Epoch 3");
  gang.Rank(1).silence_limit = seconds(0);
  EXPECT_EQ(gang.Reason(), "") << "without a limit";
  gang.Rank(1).silence_limit = seconds(15);
  gang.run.exits.push_back({.rank = 1, .exit_code = 0});
  EXPECT_EQ(gang.Reason(), "") << "it has ended";
}

TEST(Stall, AStoppedProcessIsCalledSoThoughItsStandingStillIsFoundFirst) {
  Gang gang;
  gang.AllStandStillFor(seconds(15));
  gang.Rank(1).collectives = 39;
  gang.Rank(1).silent = seconds(14);
  EXPECT_THAT(gang.Reason(), StartsWith("rank 1 on node b is stopped: its process has given no sign of life "
                                        "for 14 s"));
}

TEST(Stall, ARankThatDumpsCoreHasTimeForIt) {
  Gang gang;
  gang.AllStandStillFor(minutes(2));
  gang.Rank(1).silent = minutes(2);
  EXPECT_THAT(gang.Reason(), StartsWith("rank 1 on node b is stopped"));
  gang.Rank(1).dumping_core = true;
  EXPECT_EQ(gang.Reason(), "") << "nor is the gang held to the limits of those that wait for it";
  gang.Rank(1).silent = minutes(10);
  EXPECT_THAT(gang.Reason(),
              StartsWith("rank 1 on node b has been dumping core for 600 s, which is too long, "
                         "since step 7, all-reduce (collective 40)"));
  gang.Rank(1).silence_limit = seconds(0);
  EXPECT_EQ(gang.Reason(), "") << "without a limit";
}

TEST(Stall, TheRankThatTheOthersWaitForIsNamed) {
  Gang gang;
  gang.AllStandStillFor(seconds(15));
  gang.Rank(1).collectives = 39;
  gang.Rank(1).what = "forward pass";
  gang.Rank(1).still = seconds(16);
  EXPECT_EQ(
      gang.Reason(),
      "no progress: rank 1 on node b has been at step 7, forward pass (collective 39) for 16 s, and 2 wait "
      "for it");
}

TEST(Stall, WhatTheLastRankDoesSaysHowLongItMayTake) {
  Gang gang;
  gang.AllStandStillFor(minutes(5));
  gang.Rank(0).collectives = 39;
  gang.Rank(0).what = "writing a checkpoint";
  gang.Rank(0).limit = minutes(10);
  EXPECT_EQ(gang.Reason(), "") << "the others' own limits of 15 s are not what counts";
  gang.AllStandStillFor(minutes(10));
  EXPECT_THAT(gang.Reason(), HasSubstr("rank 0 on node a has been at step 7, writing a checkpoint"));
  gang.Rank(0).limit = seconds(0);
  EXPECT_EQ(gang.Reason(), "") << "for ever";
  gang.Rank(0).limit = minutes(20);
  gang.Rank(0).collectives = 40;
  EXPECT_EQ(gang.Reason(), "") << "of those that are as far the most patient counts";
}

TEST(Stall, WhereNoRankIsBehindTheLongestStillIsNamed) {
  Gang gang;
  gang.AllStandStillFor(seconds(15));
  gang.Rank(2).still = seconds(20);
  EXPECT_THAT(gang.Reason(), StartsWith("no rank makes progress: rank 2 on node c"));
}

TEST(Stall, OfALostLinkThePairIsNamed) {
  Gang gang;
  gang.AllStandStillFor(seconds(16));
  gang.Rank(0).unanswered = "10.0.0.2";
  EXPECT_THAT(gang.Reason(),
              StartsWith("the link between rank 0 on node a and node c (rank 2) is lost: the former gets "
                         "no answer from 10.0.0.2; rank"));
  gang.Rank(0).unanswered = "192.0.2.1";
  EXPECT_THAT(gang.Reason(), StartsWith("rank 0 on node a gets no answer from 192.0.2.1"));
}

TEST(Stall, ANodeThatIsOutOfReachIsLostOnceTheGangWaitsForItInVain) {
  Gang gang;
  gang.nodes[1].out_of_reach = true;
  gang.pulses[1].at = kNoon - seconds(12);
  gang.Rank(1).still = seconds(0);
  EXPECT_EQ(gang.Reason(), "") << "the others go on, so it does";
  gang.Rank(0).still = gang.Rank(2).still = seconds(15);
  gang.Rank(0).collectives = gang.Rank(2).collectives = 44;
  EXPECT_EQ(gang.Reason(), "") << "only its agent may be away";
  gang.Rank(2).unanswered = gang.nodes[1].address;
  const auto stall = FindStall(gang.run, gang.nodes, gang.pulses, kNoon);
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->lost, NodeId("b"));
  EXPECT_EQ(stall->trouble.code, ReasonCode::kNodeLost);
  EXPECT_THAT(stall->trouble.text,
              HasSubstr("rank 1 there was last seen at step 7, all-reduce (collective 40)"));
  gang.pulses.erase(1);
  EXPECT_THAT(gang.Reason(), HasSubstr("rank 1 there was last seen at its start"));
}

TEST(Stall, WhereANodeWasWhenItWasCutOffDoesNotMatter) {
  Gang gang;
  gang.nodes[1].out_of_reach = true;
  gang.pulses[1].at = kNoon - seconds(12);
  gang.Rank(0).still = gang.Rank(2).still = seconds(15);
  gang.Rank(0).unanswered = gang.nodes[1].address;
  gang.Rank(1).collectives = 41;  // what it sent of its last one was lost on the way
  EXPECT_THAT(gang.Reason(), StartsWith("node b is out of reach, and the gang has stood still for 15 s"));
  gang.Rank(1).collectives = 40;
  gang.Rank(1).what = "writing a checkpoint";
  gang.Rank(1).limit = minutes(10);
  EXPECT_THAT(gang.Reason(), HasSubstr("last seen at step 7, writing a checkpoint"));
  gang.Rank(2).limit = minutes(10);
  EXPECT_EQ(gang.Reason(), "") << "rank 2 is not done with what it does";
  gang.Rank(2).limit = seconds(0);
  EXPECT_EQ(gang.Reason(), "") << "and may take for ever";
}

TEST(Stall, AnAgentThatRestartsLeavesItOpen) {
  Gang gang;
  gang.AllStandStillFor(minutes(1));
  gang.pulses[1].at = kNoon - seconds(6);
  EXPECT_EQ(gang.Reason(), "");
  gang.pulses.erase(1);
  EXPECT_EQ(gang.Reason(), "") << "nor does one that has not looked yet";
}

TEST(Stall, ARankAloneCanBeStuckToo) {
  Gang gang;
  gang.run.parts.resize(1);
  gang.nodes.resize(1);
  gang.AllStandStillFor(seconds(15));
  EXPECT_EQ(gang.Reason(),
            "no progress: rank 0 on node a has been at step 7, all-reduce (collective 40) for 15 s");
}

/// The same through the reactor.
struct WatchedGang : testing::Test {
  void SetUp() override {
    cluster.Join("a", 1).Join("b", 1);
    job = cluster.Submit("rn50", {.nodes = 2});
    cluster.BringUp(job);
    cluster.Sent("a");
    cluster.Sent("b");
  }
  static RankPulse At(uint32_t rank, uint64_t collectives, Duration still) {
    return {.rank = rank,
            .step = 9,
            .collectives = collectives,
            .what = "forward pass",
            .still = still,
            .silence_limit = seconds(15),
            .limit = seconds(15)};
  }
  /// The node says where its ranks are, and a second later the gang was judged by it.
  void Pulses(const std::string& node, std::vector<RankPulse> ranks) {
    cluster.Pulses(node, job, std::move(ranks));
    cluster.Pass(seconds(1));
  }
  TestCluster cluster;
  JobId job;
};

TEST_F(WatchedGang, AStuckRankEndsTheRunWhichStartsAgain) {
  Pulses("a", {At(0, 5, seconds(15))});
  EXPECT_THAT(cluster.Sent("a"), IsEmpty()) << "of rank 1 nothing is known";
  Pulses("b", {At(1, 4, seconds(16))});
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 1/1"));
  EXPECT_THAT(cluster.Sent("b"), ElementsAre("stop 1/1"));
  Pulses("b", {At(1, 4, seconds(17))});
  EXPECT_EQ(cluster.Job(job).run.troubles.size(), 1u) << "said once";
  cluster.Ends("a", job, {ExitCode(0, 143)});
  cluster.Ends("b", job, {ExitCode(1, 143)});
  EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
  EXPECT_THAT(
      cluster.Job(job).reason.text,
      HasSubstr("no progress: rank 1 on node b has been at step 9, forward pass (collective 4) for 16 s"));
  EXPECT_EQ(cluster.Job(job).failures, 1u);
  cluster.Pass(seconds(1));
  cluster.BringUp(job);
  Pulses("a", {At(0, 5, seconds(20))});
  EXPECT_EQ(cluster.Job(job).run.troubles.size(), 0u) << "pulses of the start before count no more";
}

TEST_F(WatchedGang, IsJudgedOnceATickByTheLatestOfAllItsNodes) {
  cluster.Pulses("a", job, {At(0, 5, seconds(15))});
  cluster.Pulses("b", job, {At(1, 4, seconds(15))});
  EXPECT_THAT(cluster.Sent("a"), IsEmpty());
  cluster.Pulses("b", job, {At(1, 5, seconds(0))});
  cluster.Pass(seconds(1));
  EXPECT_THAT(cluster.Sent("a"), IsEmpty()) << "rank 1 has moved meanwhile";
  cluster.Pulses("a", job, {At(0, 5, seconds(16))});
  cluster.Pulses("b", job, {At(1, 5, seconds(15))});
  cluster.Pass(seconds(1));
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 1/1"));
}

TEST_F(WatchedGang, PulsesOfANodeThatHasNoPartInItAreNotBelieved) {
  cluster.Join("c", 1);
  Pulses("a", {At(0, 5, seconds(0)), At(1, 4, seconds(99))});
  Pulses("c", {At(1, 4, seconds(99))});
  RankPulse silent = At(1, 4, seconds(99));
  silent.silent = seconds(99);
  Pulses("c", {silent});
  EXPECT_TRUE(cluster.Job(job).run.troubles.empty());
}

TEST_F(WatchedGang, ANodeOutOfReachIsLostBeforeItsTimeIfTheGangWaitsForIt) {
  cluster.Join("c", 1);
  cluster.Pulses("b", job, {At(1, 4, seconds(0))});
  cluster.Silence("b");
  cluster.Pass(seconds(10));
  ASSERT_EQ(cluster.Node("b").state, NodeState::kUnreachable);
  RankPulse waiting = At(0, 5, seconds(15));
  Pulses("a", {waiting});
  EXPECT_EQ(cluster.Node("b").state, NodeState::kUnreachable) << "it may be that only its agent is away";
  waiting.unanswered = cluster.Node("b").address;
  Pulses("a", {waiting});
  EXPECT_EQ(cluster.Node("b").state, NodeState::kLost);
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 1/1"));
  cluster.Ends("a", job, {ExitCode(0, 143)});
  EXPECT_THAT(
      cluster.Job(job).reason.text,
      HasSubstr("node b is out of reach, and the gang has stood still for 15 s: rank 1 there was last "
                "seen at step 9"));
  EXPECT_EQ(cluster.Job(job).failures, 0u) << "a lost node is not the job's fault";
}

TEST_F(WatchedGang, AKilledRankIsNamedWithWhereItWas) {
  RankPulse last = At(1, 4, seconds(0));
  last.last_line = "Step 9";
  cluster.Pulses("b", job, {last});
  cluster.Ends("b", job, {Killed(1, 9, "bound to NUMA node 1")});  // standard error's last, of long before
  cluster.Ends("a", job, {ExitCode(0, 143)});
  EXPECT_THAT(
      cluster.Job(job).reason.text,
      HasSubstr("rank 1 on node b was killed by signal 9 (SIGKILL) at step 9, forward pass (collective 4); "
                "last log line: Step 9"));
}

}  // namespace
}  // namespace imgd
