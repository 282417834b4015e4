#include <gmock/gmock.h>

#include "server/core/testing/plan_builder.h"
#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<uint64_t> Victims(const PlanBuilder& builder) {
  std::vector<uint64_t> out;
  for (const auto& reserved : builder.Make().reserved) {
    for (const JobId id : reserved.victims) out.push_back(id.value());
  }
  return out;
}

TEST(Preemption, JobsOfALowerPriorityMakeRoomThoseOfTheSameDoNot) {
  auto builder = PlanBuilder().Node("a", 1, {8}).Node("b", 1, {9}).Holds(8, 5).Holds(9, 4);
  EXPECT_THAT(Victims(PlanBuilder(builder).Queue(1, 1, 1, 5)), ElementsAre(9));
  EXPECT_THAT(Victims(PlanBuilder(builder).Queue(1, 1, 1, 4)), IsEmpty());
  EXPECT_THAT(Victims(PlanBuilder(builder).Queue(1, 2, 1, 5)), IsEmpty()) << "one would not be enough";
  EXPECT_THAT(Victims(PlanBuilder(builder).Queue(1, 2, 1, 6)), ElementsAre(8, 9));
}

TEST(Preemption, AlsoForOneBehindAJobThatWaitsForOtherNodes) {
  auto builder =
      PlanBuilder().Node("a", 1, {8}).Is("H100").Node("b", 1, {9}).Is("A100").Holds(8, 9).Holds(9, 0);
  builder.Queue(1, 1, 1, 6).Asks({.models = {"H100"}});
  EXPECT_THAT(Victims(PlanBuilder(builder).Queue(2, 1, 1, 5).Asks({.models = {"A100"}})), ElementsAre(9));
  EXPECT_THAT(Victims(PlanBuilder(builder).Queue(2, 1, 1, 5)), IsEmpty()) << "it could use a, too";
}

TEST(Preemption, NobodyIsPreemptedWhereItFitsAnyway) {
  EXPECT_THAT(Victims(PlanBuilder().Node("a", 1, {9}).Node("b", 1).Holds(9, 0).Queue(1, 1, 1, 5)), IsEmpty());
}

TEST(Preemption, TheLowestPriorityGoesFirstThenWhoLosesTheLeastWork) {
  auto builder = PlanBuilder().Node("a", 1, {7}).Node("b", 1, {8}).Node("c", 1, {9});
  EXPECT_THAT(Victims(PlanBuilder(builder).Holds(7, 2, 1).Holds(8, 1, 50).Holds(9, 2, 2).Queue(1, 1, 1, 5)),
              ElementsAre(8));
  EXPECT_THAT(Victims(PlanBuilder(builder).Holds(7, 1, 30).Holds(8, 1, 50).Holds(9, 1, 20).Queue(1, 1, 1, 5)),
              ElementsAre(9));
}

TEST(Preemption, WhoCanBeSparedIs) {
  // Job 8 has to go for the first node, and with it the second is free too.
  auto builder = PlanBuilder().Node("a", 2, {8, 8}).Node("b", 2, {8, 9}).Holds(8, 1, 10).Holds(9, 1, 1);
  EXPECT_THAT(Victims(builder.Queue(1, 2, 1, 5)), ElementsAre(8));
}

TEST(Preemption, OneOnSeveralNodesIsCheaperThanSeveralWhoLoseMoreTogether) {
  const auto cluster = [](int spans, int on_a, int on_b) {
    auto builder = PlanBuilder().Node("a", 2, {7, 8}).Node("b", 2, {7, 9}).Node("c", 1, {6});
    builder.Holds(7, 1, spans).Holds(8, 1, on_a).Holds(9, 1, on_b).Holds(6, 1, 1000);
    return builder.Queue(1, 2, 1, 5);
  };
  EXPECT_THAT(Victims(cluster(10, 6, 6)), ElementsAre(7));
  EXPECT_THAT(Victims(cluster(13, 6, 6)), ElementsAre(8, 9));
  EXPECT_THAT(Victims(cluster(10, 1, 20)), ElementsAre(7)) << "one of the two is cheaper, both are not";
}

TEST(Preemption, WhoFreesMostForWhatIsLostGoesFirst) {
  // Three of four nodes are needed: job 6 gives two of them for 8, any other one for 5.
  auto builder = PlanBuilder().Node("a", 1, {6}).Node("b", 1, {6}).Node("c", 1, {7}).Node("d", 1, {8});
  builder.Holds(6, 1, 8).Holds(7, 1, 5).Holds(8, 1, 5).Queue(1, 3, 1, 5);
  EXPECT_THAT(Victims(builder), ElementsAre(6, 7));
}

TEST(Preemption, AsLittleAsCanBeIsTakenOfTheHigherOnesWhateverTheLowerOnesLose) {
  auto builder = PlanBuilder().Node("a", 1, {6}).Node("b", 1, {7}).Node("c", 1, {8});
  builder.Holds(6, 1, 1000).Holds(7, 2, 1).Holds(8, 2, 1).Queue(1, 2, 1, 5);
  EXPECT_THAT(Victims(builder), ElementsAre(6, 7));
}

TEST(Preemption, WhatAJobHadAgedByWhenItStartedProtectsIt) {
  auto builder = PlanBuilder().Node("a", 1, {9}).Holds(9, 3).Queue(1, 1, 1, 3);
  builder.queue[0].aged = 4;
  EXPECT_THAT(Victims(builder), IsEmpty()) << "a job preempts by its priority, not by its age";
}

TEST(Preemption, ThoseWhoLeaveAlreadyAreWaitedFor) {
  auto builder = PlanBuilder().Node("a", 1, {8}).Node("b", 1, {9}).Holds(8, 3).Holds(9, 0).Queue(1, 1, 1, 5);
  builder.cluster.holders[JobId(8)].leaving = Leaving::kForGood;
  EXPECT_THAT(Victims(builder), IsEmpty());
}

TEST(Preemption, WhatThoseWhoLeaveGiveBackStaysReservedThoughOthersWouldBeGoneSooner) {
  auto builder = PlanBuilder().Node("a", 1, {7}).Node("b", 1, {8}).Node("c", 1, {9});
  builder.Holds(7, 0).Holds(8, 0).Holds(9, 0).Ends(8, minutes(10)).Queue(1, 1, 1, 5);
  builder.cluster.holders[JobId(8)].leaving = Leaving::kGoesOn;
  const auto plan = builder.Make();
  ASSERT_EQ(plan.reserved.size(), 1u);
  EXPECT_THAT(plan.reserved.front().victims, IsEmpty());
  EXPECT_EQ(plan.reserved.front().parts.at(0).node, NodeId("b")) << "nobody has asked jobs 7 and 9";
  EXPECT_EQ(plan.reserved.front().from, kNow + minutes(10));
}

TEST(Preemption, OneThatFailedAndEndsMakesRoomForThoseBeforeIt) {
  auto builder = PlanBuilder().Node("a", 1, {8}).Node("b", 1, {9}).Holds(8, 3).Holds(9, 0);
  builder.cluster.holders[JobId(8)] = {.priority = 3, .leaving = Leaving::kComesBack};
  EXPECT_THAT(Victims(PlanBuilder(builder).Queue(1, 1, 1, 5)), IsEmpty());
  EXPECT_THAT(Victims(PlanBuilder(builder).Queue(1, 1, 1, 2)), ElementsAre(9)) << "job 8 is before it";
}

TEST(Preemption, ANodeThatIsOnlyOutOfReachIsWaitedFor) {
  auto builder = PlanBuilder().Node("a", 1, {9}).Node("b", 1).Away().Holds(9, 0).Queue(1, 1, 1, 5);
  EXPECT_THAT(Victims(builder), IsEmpty());
  builder.cluster.nodes[1].lost = true;
  const auto plan = builder.Make();
  EXPECT_THAT(plan.reserved.front().victims, ElementsAre(JobId(9)));
  EXPECT_EQ(plan.reserved.front().parts.at(0).node, NodeId("a"));
}

TEST(Preemption, WhatIsReservedIsWhereTheVictimsAre) {
  auto builder =
      PlanBuilder().Node("a", 1).Away().Node("b", 1, {8}).Node("c", 1, {9}).Holds(8, 0).Holds(9, 0);
  const auto plan = builder.Queue(1, 2, 1, 5).Make();
  EXPECT_THAT(plan.reserved.front().victims, ElementsAre(JobId(8), JobId(9)));
  ASSERT_FALSE(plan.reserved.empty());
  EXPECT_EQ(plan.reserved.front().parts.at(0).node, NodeId("b"));
}

TEST(Preemption, WhatWillBeTakenOnceThatMakesRoomCountsForWhatIsReserved) {
  auto builder = PlanBuilder().Node("a", 2, {8, 8}).Node("b", 2, {9}).Holds(8, 0);
  builder.cluster.holders[JobId(9)] = {.priority = 5};
  builder.Ends(8, std::chrono::hours(2)).Ends(9, minutes(5)).Queue(1, 2, 2, 5);
  const auto plan = builder.Queue(2, 1, 1, 5).For(minutes(60)).Queue(3, 1, 1, 5).For(minutes(5)).Make();
  EXPECT_THAT(plan.reserved.front().victims, IsEmpty()) << "it is for nothing until job 9 has ended";
  EXPECT_EQ(plan.reserved.front().from, kNow + minutes(5));
  EXPECT_TRUE(plan.reserved.front().estimate);
  ASSERT_EQ(plan.starts.size(), 1u) << "job 2 would put job 1 off";
  EXPECT_EQ(plan.starts.front().job, JobId(3));
  builder.cluster.ends.clear();
  EXPECT_FALSE(builder.Make().reserved.front().from) << "nobody knows when job 9 ends";
}

TEST(Preemption, OfOneThatIsNotPreemptibleNothingIsTaken) {
  auto builder = PlanBuilder().Node("a", 1, {9}).Holds(9, 0).Queue(1, 1, 1, 5);
  builder.cluster.holders[JobId(9)].preemptible = false;
  EXPECT_THAT(Victims(builder), IsEmpty());
}

TEST(Preemption, OnlyDevicesThatDoCount) {
  auto builder = PlanBuilder().Node("a", 1, {8}).Is("Tesla T4").Node("b", 1, {9}).Is("NVIDIA H100");
  builder.Holds(8, 0).Holds(9, 1).Queue(1, 1, 1, 5).Asks({.models = {"H100"}});
  EXPECT_THAT(Victims(builder), ElementsAre(9));
}

TEST(Preemption, AWholeNodeNeedsAllWhoAreThereToGo) {
  auto builder = PlanBuilder().Node("a", 2, {8, 9}).Holds(8, 0).Holds(9, 1).Queue(1, 1, 1, 5);
  EXPECT_THAT(Victims(builder.Asks({.whole_nodes = true})), ElementsAre(8, 9));
  builder.cluster.holders[JobId(9)].preemptible = false;
  EXPECT_THAT(Victims(builder), IsEmpty());
}

TEST(Preemption, WhatIsFreeBesideTheVictimsIsKeptToo) {
  auto builder = PlanBuilder().Node("a", 2, {9}).Holds(9, 0).Queue(1, 1, 2, 5).Queue(2, 1, 1, 1);
  const auto plan = builder.Make();
  EXPECT_THAT(plan.starts, IsEmpty()) << "job 2 would take what job 1 needs beside the victim's device";
  ASSERT_FALSE(plan.reserved.empty());
  EXPECT_EQ(plan.reserved.front().from, kNow + minutes(2));
}

TEST(Preemption, AVictimThatEndsSoonerByItselfIsWaitedForNoLonger) {
  auto builder = PlanBuilder().Node("a", 1, {9}).Holds(9, 0).Queue(1, 1, 1, 5);
  builder.cluster.ends[JobId(9)] = kNow + seconds(30);
  const auto plan = builder.Make();
  ASSERT_THAT(Victims(builder), ElementsAre(9));
  EXPECT_EQ(plan.reserved.front().from, kNow + seconds(30));
}

TEST(Preemption, AJobThatWaitsForLargerNodesIsNotInTheWay) {
  PlanBuilder builder;
  builder.Node("a", 2, {1, 1}).Is("cpu", 0, {{"zone", "x"}});
  builder.Node("b", 4, {2, 2, 2, 2}).Holds(1, 0).Holds(2, 9);
  builder.Queue(10, 1, 4, 5).Queue(11, 1, 2, 3).Asks({.labels = {{"zone", {"x"}}}});
  const auto plan = builder.Make();
  ASSERT_EQ(plan.reserved.size(), 2u) << "job 10 can only have b";
  EXPECT_THAT(plan.reserved[1].victims, ElementsAre(JobId(1)));
}

struct PreemptionOfARun : testing::Test {
  PreemptionOfARun() {
    cluster.Join("a", 1);
    low = cluster.Submit("low");
    cluster.BringUp(low);
    cluster.Sent("a");
  }
  TestCluster cluster;
  JobId low;
};

TEST_F(PreemptionOfARun, ItSavesWaitsAndGoesOnWhenTheOtherHasEnded) {
  const JobId high = cluster.Submit("high", {.priority = 3});
  EXPECT_EQ(cluster.Job(low).state, JobState::kPreempting);
  EXPECT_EQ(cluster.Job(low).reason, (Reason{ReasonCode::kPreempted,
                                             "preempted for job 2 (high), whose priority is 3: its own is "
                                             "0, and of what would make room its end loses the least, 0.0 "
                                             "device-minutes of work; a checkpoint is written first"}));
  EXPECT_EQ(cluster.LastEvent(low).actor, "scheduler");
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("checkpoint-stop 1/1"));
  EXPECT_THAT(cluster.WhyWaits(high), HasSubstr("job 1 (low) gives back a; it can start in "));
  cluster.Wrote(low, 70, cluster.Job(low).generation);
  cluster.Ends("a", low, {ExitCode(0, 11)});
  EXPECT_EQ(cluster.Job(low).state, JobState::kQueued);
  EXPECT_EQ(cluster.Job(low).failures, 0u);
  EXPECT_EQ(cluster.Job(high).state, JobState::kStarting);
  cluster.BringUp(high);
  cluster.Complete(high);
  cluster.Pass(seconds(1));
  EXPECT_EQ(cluster.Job(low).state, JobState::kStarting);
  EXPECT_THAT(cluster.History(low),
              ElementsAre("QUEUED", "STARTING", "RUNNING", "PREEMPTING", "QUEUED", "STARTING"));
}

TEST_F(PreemptionOfARun, AllDevicesOfACommandCountThoughItHasOneProcess) {
  TestCluster two;
  two.Join("a", 8).Join("b", 8);
  const JobId command = two.Submit("command", {.ranks = 8, .kind = JobKind::kCommand, .per_node = true});
  const JobId training = two.Submit("training", {.ranks = 8});
  two.BringUp(command);
  two.BringUp(training);
  two.Pass(std::chrono::minutes(10));
  two.Wrote(training, 10, two.Job(training).generation);
  two.Pass(std::chrono::minutes(5));
  two.Submit("high", {.ranks = 8, .priority = 3});
  EXPECT_EQ(two.Job(training).state, JobState::kPreempting) << "it loses 40 device-minutes, the command 120";
  EXPECT_THAT(two.Job(training).reason.text, HasSubstr("loses the least, 40.0 device-minutes"));
}

TEST_F(PreemptionOfARun, ItBacksOffForLongerEachTimeUntilItGetsAnywhere) {
  const auto is_preempted = [this](const char* wait) {
    const JobId high = cluster.Submit("high", {.priority = 3});
    cluster.Ends("a", low, {ExitCode(0, 1)});
    EXPECT_EQ(cluster.Job(low).reason.code, ReasonCode::kBackoff);
    EXPECT_THAT(
        cluster.Job(low).reason.text,
        AllOf(HasSubstr(wait), HasSubstr("(not counted against max_restarts), its place in the queue is "
                                         "kept: preempted for job")));
    cluster.BringUp(high);
    cluster.Complete(high);
  };
  is_preempted("waits 1 s ");
  cluster.Pass(seconds(1));
  cluster.BringUp(low);
  is_preempted("waits 2 s ");
  cluster.Pass(seconds(1));
  EXPECT_EQ(cluster.Job(low).state, JobState::kQueued);
  cluster.Pass(seconds(1));
  cluster.BringUp(low);
  cluster.Wrote(low, 70, cluster.Job(low).generation);
  is_preempted("waits 1 s ");
  EXPECT_EQ(cluster.Job(low).failures_in_row, 0u) << "a failure of its own waits no longer for it";
  EXPECT_EQ(cluster.Job(low).restarts, 0u);
  EXPECT_EQ(cluster.Job(low).failures, 0u);
}

/// A gang that fails by nobody's fault.
struct PreemptionOfAGangThatBreaks : PreemptionOfARun {
  PreemptionOfAGangThatBreaks() {
    EXPECT_TRUE(cluster.Cancel(low));
    cluster.Ends("a", low, {Killed(0, 15)});
    job = cluster.Submit("breaks");
  }
  void BringUp() {
    while (cluster.Job(job).state == JobState::kQueued) cluster.Pass(seconds(1));
    cluster.BringUp(job);
  }
  void Break() {
    BringUp();
    cluster.Failed(job, {.rank = 0, .message = "all-reduce broke", .collective_broken = true});
    cluster.Ends("a", job, {ExitCode(0, 10)});
  }
  JobId job;
};

TEST_F(PreemptionOfAGangThatBreaks, ItKeepsItsPlaceThoughItHasOftenFailed) {
  for (int i = 0; i < 6; ++i) Break();
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("others may go before it meanwhile"));
  BringUp();
  const JobId high = cluster.Submit("high", {.priority = 3});
  cluster.Ends("a", job, {ExitCode(0, 1)});
  EXPECT_THAT(cluster.Job(job).reason.text,
              AllOf(HasSubstr("waits 1 s "), HasSubstr("its place in the queue is kept")));
  const JobId later = cluster.Submit("later");
  cluster.BringUp(high);
  cluster.Complete(high);
  EXPECT_EQ(cluster.Job(later).state, JobState::kQueued);
  cluster.Pass(seconds(1));
  EXPECT_EQ(cluster.Job(job).state, JobState::kStarting);
}

TEST_F(PreemptionOfAGangThatBreaks, ACheckpointEndsTheCountOfItsFailuresHoweverThatStartEnds) {
  Break();
  BringUp();
  EXPECT_EQ(cluster.Job(job).failures_in_row, 1u);
  cluster.Wrote(job, 70, cluster.Job(job).generation);
  cluster.Submit("high", {.priority = 3});
  cluster.Ends("a", job, {ExitCode(0, 1)});
  EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
  EXPECT_EQ(cluster.Job(job).failures_in_row, 0u);
}

TEST_F(PreemptionOfARun, OneThatOnlyBeginsBeganWhenItDid) {
  TestCluster other;
  other.Join("a", 1);
  const JobId begins = other.Submit("begins");
  const WallTime started = other.Job(begins).started;
  other.Pass(seconds(5));
  other.Submit("high", {.priority = 3});
  EXPECT_EQ(other.Job(begins).reason.code, ReasonCode::kPreempted);
  EXPECT_EQ(other.Job(begins).started, started);
}

TEST_F(PreemptionOfARun, NobodyElseIsAskedWhileOneLeaves) {
  cluster.Join("b", 1);
  const JobId other = cluster.Submit("other");
  cluster.BringUp(other);
  cluster.Submit("high", {.priority = 3});
  cluster.Pass(seconds(5));
  const bool low_leaves = cluster.Job(low).state == JobState::kPreempting;
  EXPECT_EQ(cluster.Job(low_leaves ? other : low).state, JobState::kRunning);
}

TEST_F(PreemptionOfARun, ARunThatIsOverIsWaitedFor) {
  cluster.Ends("a", low, {ExitCode(0, 0)});
  const JobId high = cluster.Submit("high", {.priority = 3});
  EXPECT_EQ(cluster.Job(low).state, JobState::kRunning) << "whether it trained to its end is on its way";
  ASSERT_FALSE(cluster.reactor().reserved().empty());
  EXPECT_TRUE(cluster.reactor().reserved().front().from);
  cluster.Finished(low);
  EXPECT_EQ(cluster.Job(low).state, JobState::kCompleted);
  EXPECT_EQ(cluster.Job(high).state, JobState::kStarting);
}

TEST_F(PreemptionOfARun, WhatACheckpointKeepsIsNoLossAfterARestartOfTheDaemonEither) {
  cluster.Pass(minutes(40));
  cluster.Join("b", 1);
  const JobId other = cluster.Submit("other");
  cluster.BringUp(other);
  cluster.Pass(minutes(30));
  cluster.Wrote(low, 70, cluster.Job(low).generation);
  cluster.Pass(minutes(1));
  cluster.Restart();
  cluster.Join("a", 1, {{.run = cluster.RunOf(low), .phase = RunPhase::kRunning}});
  cluster.Join("b", 1, {{.run = cluster.RunOf(other), .phase = RunPhase::kRunning}});
  cluster.Submit("high", {.priority = 3});
  EXPECT_EQ(cluster.Job(low).state, JobState::kPreempting);
  EXPECT_THAT(cluster.Job(low).reason.text, HasSubstr("loses the least, 1.0 device-minutes of work"));
  EXPECT_EQ(cluster.Job(other).state, JobState::kRunning) << "half an hour of it is in no checkpoint";
}

TEST_F(PreemptionOfARun, NotWhereItIsTurnedOff) {
  TestCluster calm({.preemption = false});
  calm.Join("a", 1);
  const JobId job = calm.Submit("low");
  calm.BringUp(job);
  calm.Submit("high", {.priority = 3});
  EXPECT_EQ(calm.Job(job).state, JobState::kRunning);
}

TEST_F(PreemptionOfARun, NotWhereTheJobSaysSo) {
  const JobId stays = [this] {
    cluster.Join("b", 1);
    return cluster.Submit("stays", {.preemptible = false});
  }();
  cluster.BringUp(stays);
  cluster.Submit("high", {.nodes = 2, .priority = 3});
  EXPECT_EQ(cluster.Job(low).state, JobState::kRunning) << "it alone would not be enough";
  EXPECT_EQ(cluster.Job(stays).state, JobState::kRunning);
}

}  // namespace
}  // namespace imgd
