#include <gmock/gmock.h>

#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

/// A job of one to three nodes that has run on node a for ten minutes.
struct ElasticRun : testing::Test {
  ElasticRun() {
    cluster.Join("a", 1);
    job = cluster.Submit("rn50", {.nodes = 1, .max_nodes = 3});
    cluster.BringUp(job);
    cluster.Pass(minutes(10));
    cluster.Sent("a");
  }
  /// It wrote a checkpoint of that step, as it was asked, and its ranks ended.
  void SavesAndEnds(uint64_t step) {
    cluster.Wrote(job, step, cluster.Job(job).generation);
    const auto parts = cluster.Job(job).run.parts;
    for (const auto& part : parts) cluster.Ends(part.node.name(), job, {ExitCode(part.first_rank, 11)});
  }
  void GrowsToB() {
    cluster.Join("b", 1);
    cluster.Pass(seconds(31));
    SavesAndEnds(70);
    cluster.BringUp(job);
  }
  std::vector<std::string> Nodes() const {
    std::vector<std::string> out;
    for (const auto& part : cluster.Job(job).run.parts) out.push_back(part.node.name());
    return out;
  }
  JobState State() const { return cluster.Job(job).state; }
  TestCluster cluster;
  JobId job;
};

TEST_F(ElasticRun, ItGrowsThroughACheckpointWhenANodeJoins) {
  cluster.Join("b", 1);
  cluster.Pass(seconds(29));
  EXPECT_EQ(State(), JobState::kRunning) << "others may join a moment later";
  cluster.Join("c", 1);
  cluster.Pass(seconds(2));
  EXPECT_EQ(State(), JobState::kPreempting);
  EXPECT_EQ(cluster.Job(job).reason, (Reason{ReasonCode::kGrows,
                                             "is to go on with 3 nodes instead of 1: b and c are free; a "
                                             "checkpoint is written first"}));
  EXPECT_EQ(cluster.LastEvent(job).actor, "scheduler");
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("checkpoint-stop 1/1"));
  SavesAndEnds(70);
  EXPECT_EQ(State(), JobState::kStarting);
  EXPECT_EQ(cluster.Job(job).reason,
            (Reason{ReasonCode::kResized,
                    "goes on with 3 nodes instead of 1: b and c are free; placed on a, b, c; its "
                    "ranks are being started"}));
  cluster.BringUp(job);
  EXPECT_EQ(cluster.LastStart("c").world_size, 3U);
  EXPECT_EQ(cluster.LastStart("c").node_count, 3U);
  EXPECT_EQ(cluster.LastStart("c").resume_from.front(), "/ckpt/g1/step70");
  EXPECT_EQ(cluster.Job(job).restarts + cluster.Job(job).failures, 0U);
  EXPECT_THAT(cluster.History(job),
              ElementsAre("QUEUED", "STARTING", "RUNNING", "PREEMPTING", "QUEUED", "STARTING", "RUNNING"));
  cluster.Complete(job);
  EXPECT_EQ(State(), JobState::kCompleted);
}

TEST_F(ElasticRun, NotMoreOftenThanItsIntervalAndNotBeyondItsMost) {
  GrowsToB();
  cluster.Join("c", 1);
  cluster.Pass(minutes(9));
  EXPECT_EQ(State(), JobState::kRunning);
  cluster.Pass(minutes(1) + seconds(31));
  EXPECT_EQ(State(), JobState::kPreempting);
  SavesAndEnds(80);
  cluster.BringUp(job);
  cluster.Join("d", 1);
  cluster.Pass(minutes(20));
  EXPECT_EQ(State(), JobState::kRunning) << "three are the most";
}

TEST(ElasticWait, ItGrowsThoughNothingHappensAfterItsStart) {
  TestCluster cluster;
  cluster.Join("a", 1).Join("b", 1);
  const JobId other = cluster.Submit("other");
  cluster.BringUp(other);
  const JobId job = cluster.Submit("rn50", {.nodes = 1, .max_nodes = 2});
  cluster.Complete(other);
  cluster.BringUp(job);
  cluster.Pass(minutes(10) + seconds(31));
  EXPECT_EQ(cluster.Job(job).state, JobState::kPreempting);
}

TEST_F(ElasticRun, ItGrowsWhenAnotherJobEnds) {
  cluster.Join("b", 1);
  const JobId other = cluster.Submit("other");
  cluster.BringUp(other);
  cluster.Pass(minutes(1));
  EXPECT_EQ(State(), JobState::kRunning);
  cluster.Complete(other);
  cluster.Pass(seconds(31));
  EXPECT_EQ(State(), JobState::kPreempting);
}

TEST_F(ElasticRun, NotWhileSomebodyWaits) {
  const JobId big = cluster.Submit("big", {.nodes = 3});
  cluster.Join("b", 1).Join("c", 1).Join("d", 1);
  cluster.BringUp(big);
  const JobId more = cluster.Submit("more", {.nodes = 2});
  cluster.Join("e", 1);
  cluster.Pass(minutes(5));
  EXPECT_EQ(State(), JobState::kRunning) << "e is kept for the other";
  cluster.Cancel(more);
  cluster.Pass(seconds(31));
  EXPECT_EQ(State(), JobState::kPreempting);
}

TEST_F(ElasticRun, NotOntoWhatAJobThatIsEndingWillWant) {
  cluster.Join("b", 1).Join("c", 1);
  const JobId other = cluster.Submit("other", {.nodes = 2});
  cluster.BringUp(other);
  cluster.Join("d", 1);
  cluster.Pass(seconds(25));
  cluster.Ends("b", other, {Killed(0, 9)});
  cluster.Pass(seconds(10));
  EXPECT_EQ(State(), JobState::kRunning);
}

TEST_F(ElasticRun, NobodyGetsWhatItHasOrWillHaveMeanwhile) {
  cluster.Join("b", 1);
  cluster.Pass(seconds(31));
  const JobId other = cluster.Submit("other");
  EXPECT_EQ(cluster.Job(other).state, JobState::kQueued);
  EXPECT_THAT(cluster.WhyWaits(other), HasSubstr("job 1 (rn50) holds a, b"));
  SavesAndEnds(70);
  EXPECT_THAT(Nodes(), ElementsAre("a", "b"));
  cluster.BringUp(job);
  cluster.Complete(job);
  EXPECT_EQ(cluster.Job(other).state, JobState::kStarting);
}

TEST_F(ElasticRun, OneOfAHigherPriorityIsServedFirstAllTheSame) {
  cluster.Join("b", 1);
  cluster.Pass(seconds(31));
  const JobId high = cluster.Submit("high", {.priority = 3});
  cluster.Pass(seconds(1));
  EXPECT_EQ(cluster.Job(high).state, JobState::kStarting) << "b is free again";
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kPreempted);
  SavesAndEnds(70);
  EXPECT_THAT(Nodes(), ElementsAre("a"));
}

TEST_F(ElasticRun, WhereTheNewNodeHasGoneItGoesOnWithItsOwn) {
  cluster.Join("b", 1);
  cluster.Pass(seconds(31));
  const JobId other = cluster.Submit("other");
  cluster.Leave("b");
  SavesAndEnds(70);
  EXPECT_THAT(Nodes(), ElementsAre("a"));
  EXPECT_EQ(cluster.Job(other).state, JobState::kQueued);
}

TEST_F(ElasticRun, ItGrowsOverARestartOfTheDaemon) {
  cluster.Join("b", 1);
  cluster.Pass(seconds(31));
  cluster.Restart();
  cluster.Join("a", 1, {{.run = cluster.RunOf(job), .phase = RunPhase::kRunning}});
  cluster.Join("b", 1);
  const JobId other = cluster.Submit("other");
  EXPECT_EQ(cluster.Job(other).state, JobState::kQueued);
  SavesAndEnds(70);
  EXPECT_THAT(Nodes(), ElementsAre("a", "b"));
}

TEST_F(ElasticRun, AfterARestartItsOwnNodeIsNotGivenUpBecauseItsAgentIsNotBackYet) {
  GrowsToB();
  cluster.Join("c", 1);
  cluster.Pass(minutes(10) + seconds(31));
  ASSERT_EQ(State(), JobState::kPreempting);
  cluster.Wrote(job, 90, cluster.Job(job).generation);
  cluster.Ends("a", job, {ExitCode(0, 11)});
  cluster.Restart();
  cluster.Join("b", 1, {{.run = cluster.RunOf(job), .phase = RunPhase::kRunning}});
  cluster.Join("c", 1);
  cluster.Ends("b", job, {ExitCode(1, 11)});
  EXPECT_THAT(Nodes(), ElementsAre("a", "b", "c"));
  cluster.Join("a", 1);
  cluster.BringUp(job);
  EXPECT_EQ(State(), JobState::kRunning);
}

TEST_F(ElasticRun, ARankThatFailsMeanwhileIsNotWaitedForAndCountsForNothing) {
  GrowsToB();
  cluster.Join("c", 1);
  cluster.Pass(minutes(10) + seconds(31));
  ASSERT_EQ(State(), JobState::kPreempting);
  cluster.Sent("b");
  cluster.Ends("a", job, {Killed(0, 11)});
  EXPECT_THAT(cluster.Sent("b"), ElementsAre("stop 1/2"));
  cluster.Ends("b", job, {ExitCode(1, 143)});
  EXPECT_THAT(Nodes(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(cluster.Job(job).failures, 0U);
}

TEST_F(ElasticRun, AMachineThatRestartsMeanwhileIsNotWaitedForButWhatWasSavedIs) {
  GrowsToB();
  cluster.Join("c", 1);
  cluster.Pass(minutes(10) + seconds(31));
  ASSERT_EQ(State(), JobState::kPreempting);
  cluster.Sent("b");
  cluster.Ends("a", job, {});
  EXPECT_THAT(cluster.Sent("b"), ElementsAre("stop 1/2"));
  cluster.Ends("b", job, {ExitCode(1, 11)});
  EXPECT_EQ(State(), JobState::kPreempting) << "its checkpoint has not been told yet";
  cluster.Wrote(job, 90, cluster.Job(job).generation);
  cluster.Pass(seconds(1));
  EXPECT_THAT(Nodes(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(cluster.Job(job).failures, 0U);
}

TEST_F(ElasticRun, APauseOrACancelGoesBeforeGrowing) {
  cluster.Join("b", 1);
  cluster.Pass(seconds(31));
  ASSERT_TRUE(cluster.Pause(job));
  const JobId other = cluster.Submit("other");
  EXPECT_EQ(cluster.Job(other).state, JobState::kStarting) << "b is free again";
  SavesAndEnds(70);
  EXPECT_EQ(State(), JobState::kPaused);
  ASSERT_TRUE(cluster.Resume(job));
  EXPECT_THAT(Nodes(), ElementsAre("a"));
  EXPECT_TRUE(cluster.Cancel(job));
}

TEST_F(ElasticRun, ALostNodeMakesItSmaller) {
  GrowsToB();
  cluster.Silence("b");
  cluster.Pass(seconds(50));
  cluster.Ends("a", job, {ExitCode(0, 143)});
  cluster.Pass(seconds(2));
  EXPECT_THAT(Nodes(), ElementsAre("a"));
  EXPECT_EQ(cluster.Job(job).reason,
            (Reason{ReasonCode::kResized,
                    "goes on with 1 node instead of 2: node b is lost; placed on a; its "
                    "ranks are being started"}));
  EXPECT_EQ(cluster.Job(job).failures, 0U);
  cluster.BringUp(job);
  cluster.Complete(job);
  EXPECT_EQ(State(), JobState::kCompleted) << "one rank is all it has";
}

TEST_F(ElasticRun, ADrainedNodeMakesItSmallerAtOnce) {
  GrowsToB();
  cluster.SetAside("b", true, "bad fan");
  SavesAndEnds(80);
  EXPECT_THAT(Nodes(), ElementsAre("a"));
  EXPECT_THAT(cluster.Job(job).reason.text,
              HasSubstr("goes on with 1 node instead of 2: node b is drained by ada: bad fan; placed on a"));
  cluster.BringUp(job);
  cluster.Pass(minutes(20));
  EXPECT_EQ(State(), JobState::kRunning);
}

/// Somebody drained a and took it back; imgd restarts, and b does not come back.
class ElasticRunWithoutB : public ElasticRun {
 protected:
  void DrainedAndRestarted() {
    ASSERT_TRUE(cluster.Return("a", /*drained=*/true));
    cluster.Restart();
    cluster.Join("a", 1, {{.run = cluster.RunOf(job), .phase = RunPhase::kStopping}});
    cluster.Ends("a", job, {ExitCode(0, 11)});
  }
};

TEST_F(ElasticRunWithoutB, ItIsWaitedForUntilItIsLost) {
  GrowsToB();
  ASSERT_TRUE(cluster.SetAside("a", true));
  DrainedAndRestarted();
  cluster.Pass(seconds(40));
  EXPECT_EQ(State(), JobState::kPreempting) << "b may still have a rank of it";
  cluster.Pass(seconds(20));
  EXPECT_THAT(Nodes(), ElementsAre("a"));
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("goes on with 1 node instead of 2: node b is lost;"));
}

TEST_F(ElasticRunWithoutB, ItIsNotWaitedForWhereItsRankWasGoneBefore) {
  GrowsToB();
  ASSERT_TRUE(cluster.SetAside("a", true));
  cluster.Ends("b", job, {ExitCode(1, 11)});
  EXPECT_EQ(State(), JobState::kPreempting) << "a has a rank of it";
  DrainedAndRestarted();
  cluster.Pass(seconds(2));
  EXPECT_THAT(Nodes(), ElementsAre("a"));
  EXPECT_THAT(cluster.Job(job).reason.text,
              HasSubstr("goes on with 1 node instead of 2: node b is not connected;"));
}

TEST_F(ElasticRun, PreemptedItGoesOnWithWhatIsLeft) {
  GrowsToB();
  const JobId high = cluster.Submit("high", {.priority = 3});
  SavesAndEnds(80);
  EXPECT_EQ(cluster.Job(high).state, JobState::kStarting);
  cluster.Pass(seconds(1));
  EXPECT_THAT(Nodes(), SizeIs(1));
  EXPECT_EQ(State(), JobState::kStarting);
  EXPECT_THAT(cluster.Job(job).reason.text,
              HasSubstr("goes on with 1 node instead of 2: preempted for job 2 (high), whose priority is 3"));
}

TEST_F(ElasticRun, AQuotaThatMakesItSmallerIsNamed) {
  GrowsToB();
  ASSERT_TRUE(cluster.Pause(job));
  SavesAndEnds(80);
  CoreSettings settings;
  settings.quotas.users["ada"].devices = 1;
  cluster.reactor().SetSettings(settings);
  ASSERT_TRUE(cluster.Resume(job));
  EXPECT_THAT(Nodes(), SizeIs(1));
  EXPECT_THAT(
      cluster.Job(job).reason.text,
      HasSubstr("goes on with 1 node instead of 2: user ada's quota leaves it no more devices; placed"));
}

TEST_F(ElasticRun, MovedItDoesNotGrowBack) {
  cluster.Join("b", 1);
  ASSERT_TRUE(cluster.Move(job));
  SavesAndEnds(70);
  EXPECT_THAT(Nodes(), ElementsAre("b"));
  cluster.BringUp(job);
  cluster.Pass(minutes(20));
  EXPECT_EQ(State(), JobState::kRunning);
  cluster.Join("c", 1);
  cluster.Pass(seconds(31));
  SavesAndEnds(80);
  EXPECT_THAT(Nodes(), ElementsAre("b", "c"));
  cluster.BringUp(job);
  cluster.Pass(minutes(20));
  EXPECT_EQ(State(), JobState::kRunning) << "nor later";
}

TEST(ElasticWait, BelowItsLeastItWaitsAndSaysSo) {
  TestCluster cluster;
  cluster.Join("a", 1).Join("b", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 2, .max_nodes = 8});
  cluster.BringUp(job);
  cluster.Wrote(job, 70, Generation(1));
  cluster.Silence("b");
  cluster.Pass(seconds(50));
  cluster.Ends("a", job, {ExitCode(0, 143)});
  cluster.Pass(seconds(10));
  EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
  EXPECT_THAT(cluster.WhyWaits(job), AllOf(HasSubstr("needs 2 to 8 nodes with 1 free device each; 1 is free"),
                                           HasSubstr("node b is lost")));
  cluster.Join("c", 1).Join("d", 1);
  EXPECT_EQ(cluster.Job(job).state, JobState::kStarting) << "as soon as two are there";
  EXPECT_EQ(cluster.Job(job).run.parts.size(), 2U);
}

TEST(ElasticWait, ItsTimeLimitLeavesNoTimeToGrow) {
  TestCluster cluster;
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 1, .max_nodes = 2, .time_limit_ms = 19 * 60'000});
  cluster.BringUp(job);
  cluster.Pass(minutes(10));
  cluster.Join("b", 1);
  cluster.Pass(minutes(2));
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
}

TEST(ElasticWait, OfTwoTheFirstInTheQueueGrows) {
  TestCluster cluster;
  cluster.Join("a", 1).Join("b", 1);
  cluster.BringUp(cluster.Submit("other"));
  const JobId one = cluster.Submit("one", {.nodes = 1, .max_nodes = 2});
  cluster.BringUp(one);
  cluster.Join("c", 1);
  const JobId two = cluster.Submit("two", {.nodes = 1, .max_nodes = 2, .priority = 1});
  cluster.BringUp(two);
  cluster.Pass(minutes(11));
  cluster.Join("d", 1);
  cluster.Pass(seconds(31));
  EXPECT_EQ(cluster.Job(two).state, JobState::kPreempting);
  EXPECT_EQ(cluster.Job(one).state, JobState::kRunning);
}

}  // namespace
}  // namespace imgd
