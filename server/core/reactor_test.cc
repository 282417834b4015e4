#include "server/core/reactor.h"

#include <gmock/gmock.h>

#include "server/core/job.h"
#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Two nodes with a device each, and a gang over both that runs.
struct TwoNodeGang : testing::Test {
  void SetUp() override {
    cluster.Join("a", 1).Join("b", 1);
    job = cluster.Submit("rn50", {.nodes = 2});
    cluster.BringUp(job);
    cluster.Sent("a");
    cluster.Sent("b");
  }
  TestCluster cluster;
  JobId job;
};

TEST(Reactor, AGangStartsByPrepareThenStartThenReports) {
  TestCluster cluster;
  cluster.Join("a", 1).Join("b", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 2});
  EXPECT_EQ(cluster.Job(job).state, JobState::kStarting);
  EXPECT_EQ(cluster.Job(job).checkpoint_dir, "/ckpt/rn50-cafe0123-1");
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("prepare 1/1"));
  EXPECT_THAT(cluster.Sent("b"), IsEmpty());

  cluster.Prepared("a", job);
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("start 1/1"));
  EXPECT_THAT(cluster.Sent("b"), ElementsAre("start 1/1"));
  EXPECT_EQ(cluster.LastStart("b").master_address, "a");
  EXPECT_EQ(cluster.LastStart("b").node_rank, 1u);
  EXPECT_EQ(cluster.LastStart("b").first_rank, 1u);

  cluster.Runs("a", job);
  cluster.Runs("b", job);
  cluster.Started(job, 0);
  EXPECT_EQ(cluster.Job(job).state, JobState::kStarting) << "rank 1 has not said that it trains";
  cluster.Started(job, 1);
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
}

TEST_F(TwoNodeGang, CompletesWhenEveryRankEndedWell) {
  cluster.Complete(job);
  EXPECT_THAT(cluster.History(job), ElementsAre("QUEUED", "STARTING", "RUNNING", "COMPLETED"));
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("forget 1/1"));
  EXPECT_EQ(cluster.Node("a").holders[0], JobId());
}

TEST_F(TwoNodeGang, TheEndOfTheTrainingMayBeReportedAfterTheRanksAreGone) {
  cluster.Ends("a", job, {ExitCode(0, 0)});
  cluster.Ends("b", job, {ExitCode(1, 0)});
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
  cluster.Finished(job);
  EXPECT_EQ(cluster.Job(job).state, JobState::kCompleted);
}

TEST_F(TwoNodeGang, TheEndOfTheTrainingMayComeBehindMuchElseThatTheRanksWrote) {
  cluster.Ends("a", job, {ExitCode(0, 0)});
  cluster.Ends("b", job, {ExitCode(1, 0)});
  for (int i = 0; i < 5; ++i) {
    cluster.Pass(seconds(1));
    cluster.reactor().OnRelayed(cluster.RunOf(job), cluster.now());
  }
  cluster.Wrote(job, 10, Generation(1));
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
  cluster.Finished(job);
  EXPECT_EQ(cluster.Job(job).state, JobState::kCompleted);
  EXPECT_EQ(cluster.Job(job).checkpoints.front().step, 10u);
}

TEST_F(TwoNodeGang, ARunThatIsOverEndsOnceNothingMoreComes) {
  cluster.Pass(seconds(10));
  cluster.reactor().OnRelayed(cluster.RunOf(job), cluster.now());
  cluster.Pass(seconds(10));
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning) << "its ranks are not gone";
  cluster.Ends("a", job, {ExitCode(0, 0)});
  cluster.Ends("b", job, {ExitCode(1, 0)});
  cluster.Pass(seconds(1));
  cluster.reactor().OnRelayed(cluster.RunOf(job), cluster.now());
  cluster.Pass(seconds(2));
  EXPECT_EQ(cluster.Job(job).restarts, 1u);
}

TEST_F(TwoNodeGang, ExitCode0WithoutTheEndOfTheTrainingIsAFailure) {
  cluster.Ends("a", job, {ExitCode(0, 0)});
  cluster.Ends("b", job, {ExitCode(1, 0)});
  cluster.Pass(seconds(3));
  EXPECT_EQ(cluster.Job(job).restarts, 1u);
}

TEST_F(TwoNodeGang, AKilledRankSendsTheGangBackToTheQueueWithTheReason) {
  // The survivor's collective breaks, and it is heard first; it is not the cause.
  cluster.Ends("a", job, {ExitCode(0, 10, "collective timed out")});
  EXPECT_THAT(cluster.Sent("b"), ElementsAre("stop 1/1"));
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning) << "devices are held until every process is gone";
  cluster.Ends("b", job, {Killed(1, 9, "step 42")});
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning) << "rank 0 may still say why it ended";
  cluster.Failed(job, {.rank = 0, .message = "all-reduce broke", .collective_broken = true});
  EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kBackoff);
  EXPECT_THAT(cluster.Job(job).reason.text,
              HasSubstr("rank 1 on node b was killed by signal 9 (SIGKILL); last error line: step 42"));

  cluster.Pass(seconds(1));
  EXPECT_EQ(cluster.Job(job).state, JobState::kStarting);
  EXPECT_EQ(cluster.Job(job).generation, Generation(2));
}

TEST_F(TwoNodeGang, ARankThatFailsByItselfIsBelievedBeforeOneWhoseCollectiveBroke) {
  cluster.Failed(job, {.rank = 0, .message = "peer closed", .collective_broken = true});
  cluster.Ends("a", job, {ExitCode(0, 10)});
  cluster.Failed(job, {.rank = 1, .message = "out of memory"});
  cluster.Ends("b", job, {ExitCode(1, 1)});
  EXPECT_THAT(cluster.Job(job).reason.text,
              HasSubstr("rank 1 on node b failed with exit code 1: out of memory"));
}

TEST_F(TwoNodeGang, RanksThatImgdItselfStoppedAreNoCause) {
  cluster.Failed(job, {.rank = 1, .message = "broke", .collective_broken = true});
  cluster.Ends("b", job, {ExitCode(1, 10)});
  cluster.Ends("a", job, {ExitCode(0, 143)});  // by the SIGTERM of the stop
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("rank 1 on node b"));
}

TEST_F(TwoNodeGang, BadInputIsNotTriedAgain) {
  cluster.Failed(job, {.rank = 0, .message = "no images in /data/train", .bad_input = true});
  cluster.Ends("a", job, {ExitCode(0, 2)});
  cluster.Ends("b", job, {ExitCode(1, 143)});
  EXPECT_EQ(cluster.Job(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.Job(job).reason, (Reason{ReasonCode::kBadInput, "no images in /data/train"}));
}

TEST(Reactor, GivesUpAfterMaxRestarts) {
  TestCluster cluster;
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn50", {.max_restarts = 2});
  for (int i = 0; i < 3; ++i) {
    cluster.BringUp(job);
    cluster.Ends("a", job, {Killed(0, 11)});
    if (i < 2) {
      EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
      cluster.Pass(seconds(2));
    }
  }
  EXPECT_EQ(cluster.Job(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kRetriesExhausted);
  EXPECT_THAT(cluster.Job(job).reason.text,
              AllOf(HasSubstr("gave up after 2 restarts"), HasSubstr("SIGSEGV")));
}

TEST(Reactor, TheBackoffDoublesAndStartsAgainAfterProgress) {
  TestCluster cluster;
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn50");
  const auto fail_and_wait = [&] {
    cluster.BringUp(job);
    cluster.Ends("a", job, {Killed(0, 9)});
    const auto wait = cluster.Job(job).not_before - cluster.now().steady;
    cluster.Pass(wait);
    return std::chrono::duration_cast<seconds>(wait).count();
  };
  EXPECT_EQ(fail_and_wait(), 1);
  EXPECT_EQ(fail_and_wait(), 2);
  EXPECT_EQ(fail_and_wait(), 4);
  cluster.Wrote(job, 100, cluster.Job(job).generation);
  EXPECT_EQ(fail_and_wait(), 1);
  EXPECT_EQ(BackoffAfter(100), seconds(60));
}

TEST(Reactor, ARestartNamesTheAcceptedCheckpointsAndTheLastWriter) {
  TestCluster cluster;
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn50");
  cluster.BringUp(job);
  EXPECT_EQ(cluster.LastStart("a").last_writer, Generation(0));
  cluster.Wrote(job, 10, Generation(1));
  cluster.Wrote(job, 20, Generation(1));
  cluster.Ends("a", job, {Killed(0, 9)});
  cluster.Pass(seconds(1));
  cluster.Prepared("a", job);
  EXPECT_THAT(cluster.LastStart("a").resume_from, ElementsAre("/ckpt/g1/step20", "/ckpt/g1/step10"));
  EXPECT_EQ(cluster.LastStart("a").last_writer, Generation(1));

  cluster.Wrote(job, 30, Generation(1));  // from the old half of a partition
  EXPECT_EQ(cluster.Job(job).checkpoints.front().step, 20u);
  EXPECT_EQ(cluster.reactor().stale_reports(), 1u);
}

TEST(Reactor, AQueuedJobIsCancelledAtOnce) {
  TestCluster cluster;
  const JobId job = cluster.Submit("rn50");
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kNoNodes);
  EXPECT_TRUE(cluster.Cancel(job).has_value());
  EXPECT_EQ(cluster.Job(job).state, JobState::kCancelled);
  EXPECT_TRUE(cluster.Cancel(job).has_value()) << "cancelling twice is no error";
}

TEST_F(TwoNodeGang, CancelFreesDevicesOnlyWhenTheProcessesAreGone) {
  EXPECT_TRUE(cluster.Cancel(job).has_value());
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 1/1"));
  EXPECT_THAT(cluster.Sent("b"), ElementsAre("stop 1/1"));
  cluster.Ends("a", job, {ExitCode(0, 143)});
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
  EXPECT_EQ(cluster.Node("a").holders[0], job);
  cluster.Ends("b", job, {Killed(1, 9)});
  EXPECT_EQ(cluster.Job(job).state, JobState::kCancelled);
  EXPECT_EQ(cluster.Job(job).reason.text, "cancelled by ada");
  EXPECT_EQ(cluster.Node("a").holders[0], JobId());
}

TEST_F(TwoNodeGang, CancelMaySaveFirstAndASecondOneDoesNotWait) {
  EXPECT_TRUE(cluster.Cancel(job, true).has_value());
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("checkpoint-stop 1/1"));
  EXPECT_TRUE(cluster.Cancel(job).has_value());
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 1/1"));
}

TEST_F(TwoNodeGang, AnEndedJobCannotBeCancelled) {
  cluster.Complete(job);
  const auto status = cluster.Cancel(job);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(cluster.Cancel(JobId(77)).error().code, ErrorCode::kNotFound);
}

TEST(Reactor, ACancelledStartThatNoNodeHeardOfEndsAtOnce) {
  TestCluster cluster;
  cluster.Join("a", 1).Join("b", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 2});
  EXPECT_TRUE(cluster.Cancel(job).has_value());
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("prepare 1/1", "stop 1/1"));
  EXPECT_THAT(cluster.Sent("b"), IsEmpty());
  cluster.Ends("a", job, {});
  EXPECT_EQ(cluster.Job(job).state, JobState::kCancelled);
}

TEST(Reactor, AStartThatFailsGoesBackToTheQueue) {
  TestCluster cluster;
  cluster.Join("a", 1).Join("b", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 2});
  cluster.Prepared("a", job);
  cluster.Says("b",
               {.run = cluster.RunOf(job), .phase = RunPhase::kGone, .start_error = "no program imgtrain"});
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("prepare 1/1", "start 1/1", "stop 1/1"));
  cluster.Ends("a", job, {ExitCode(0, 143)});
  EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
  EXPECT_THAT(cluster.Job(job).reason.text,
              HasSubstr("node b could not start the ranks: no program imgtrain"));
}

TEST(Reactor, NoPortForTheRendezvousIsAFailedStart) {
  TestCluster cluster;
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn50");
  cluster.Prepared("a", job, "no free port");
  cluster.Ends("a", job, {});
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("node a has no port for the rendezvous: no free port"));
}

TEST(Reactor, AStartThatTakesTooLongIsGivenUp) {
  TestCluster cluster;
  cluster.Join("a", 1).Join("b", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 2});
  cluster.Prepared("a", job);
  cluster.Started(job, 0);
  cluster.Pass(minutes(10));
  EXPECT_THAT(cluster.Sent("b"), ElementsAre("start 1/1", "stop 1/1"));
  cluster.Ends("a", job, {ExitCode(0, 143)});
  cluster.Ends("b", job, {ExitCode(1, 143)});
  EXPECT_THAT(cluster.Job(job).reason.text,
              HasSubstr("rank 1 on node b did not begin to train within 600 s (start_timeout in imgd.yaml)"));
}

TEST_F(TwoNodeGang, ASilentNodeIsUnreachableThenLostAndTheGangStartsElsewhere) {
  cluster.Join("c", 1);
  cluster.Silence("b");
  cluster.Pass(seconds(10));
  EXPECT_EQ(cluster.Node("b").state, NodeState::kUnreachable);
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning) << "it may come back";
  cluster.Pass(seconds(36));
  EXPECT_EQ(cluster.Node("b").state, NodeState::kLost);
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 1/1"));
  cluster.Ends("a", job, {ExitCode(0, 143)});
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("node b is lost: it was out of reach for 45 s"));
  EXPECT_EQ(cluster.Job(job).failures, 0u) << "a lost node is not the job's fault";
  cluster.Pass(seconds(1));
  EXPECT_EQ(cluster.Job(job).state, JobState::kStarting);
  EXPECT_EQ(cluster.Job(job).run.parts[1].node, NodeId("c"));

  // The old half comes back and still trains: it is stopped, and takes nothing until it is gone.
  const RunKey old{job, Generation(1)};
  cluster.Join("b", 1, {{.run = old, .phase = RunPhase::kRunning}});
  EXPECT_THAT(cluster.Sent("b"), ElementsAre("disconnect", "stop 1/1"));
  EXPECT_FALSE(cluster.Node("b").Usable());
  cluster.Says("b", {.run = old, .phase = RunPhase::kGone});
  EXPECT_THAT(cluster.Sent("b"), ElementsAre("forget 1/1"));
  EXPECT_TRUE(cluster.Node("b").Usable());
}

TEST_F(TwoNodeGang, ABrokenCollectiveMakesAnUnreachableNodeLostAtOnce) {
  cluster.Silence("b");
  cluster.Pass(seconds(10));
  cluster.Failed(job, {.rank = 0, .message = "peer timed out", .collective_broken = true});
  cluster.Ends("a", job, {ExitCode(0, 10)});
  EXPECT_EQ(cluster.Node("b").state, NodeState::kLost);
  EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("collectives broke"));
}

TEST_F(TwoNodeGang, ANodeIsNotLostAtOnceWhereWhatItSaidCouldNotBeStored) {
  cluster.Silence("b");
  cluster.Pass(seconds(10));
  EXPECT_EQ(cluster.Node("b").state, NodeState::kUnreachable);
  cluster.reactor().Rollback();  // of its Hello
  cluster.Join("a", 1, {{.run = cluster.RunOf(job), .phase = RunPhase::kRunning}});
  cluster.Failed(job, {.rank = 0, .message = "peer timed out", .collective_broken = true});
  cluster.Ends("a", job, {ExitCode(0, 10)});
  EXPECT_EQ(cluster.Node("b").state, NodeState::kUnreachable);
  cluster.Pass(seconds(10));
  EXPECT_EQ(cluster.Node("b").state, NodeState::kLost);
}

TEST_F(TwoNodeGang, NodesAreNotLostForTheDaemonsOwnAbsence) {
  cluster.Restart();
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
  const RunReport running{.run = cluster.RunOf(job), .phase = RunPhase::kRunning};
  cluster.Pass(seconds(40));
  EXPECT_NE(cluster.Node("a").state, NodeState::kLost);
  cluster.Join("a", 1, {running}).Join("b", 1, {running});
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
  EXPECT_THAT(cluster.Sent("a"), IsEmpty());
  cluster.Complete(job);
  EXPECT_EQ(cluster.Job(job).state, JobState::kCompleted);
}

TEST_F(TwoNodeGang, ARunThatANodeNoLongerListsHasEnded) {
  cluster.Restart();
  cluster.Join("a", 1, {{.run = cluster.RunOf(job), .phase = RunPhase::kRunning}}).Join("b", 1);
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 1/1"));
  cluster.Ends("a", job, {ExitCode(0, 143)});
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("node b came back without the ranks that it ran"));
  EXPECT_EQ(cluster.Job(job).failures, 0u) << "its machine was restarted";
  EXPECT_THAT(cluster.Node("b").strikes, IsEmpty());
}

TEST_F(TwoNodeGang, AMachineThatRestartedUnderItsRanksIsLikeALostNode) {
  cluster.Leave("b");
  cluster.Join("b", 1, {{.run = cluster.RunOf(job), .phase = RunPhase::kGone}});
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 1/1"));
  cluster.Ends("a", job, {ExitCode(0, 143)});
  EXPECT_THAT(cluster.Job(job).reason.text,
              HasSubstr("ranks on node b are gone and left no exit status, as when a machine restarts"));
  EXPECT_EQ(cluster.Job(job).failures, 0u);
  EXPECT_THAT(cluster.Node("b").strikes, IsEmpty());
}

TEST(Reactor, ACommandThatGotLostIsSentAgain) {
  TestCluster cluster;
  cluster.Join("a", 1).Join("b", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 2});
  cluster.Leave("a");
  cluster.Join("a", 1);
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("prepare 1/1", "prepare 1/1"));
  cluster.Prepared("a", job);
  cluster.Leave("b");
  cluster.Join("b", 1);
  EXPECT_THAT(cluster.Sent("b"), ElementsAre("start 1/1", "start 1/1"));
  EXPECT_TRUE(cluster.Cancel(job).has_value());
  cluster.Leave("b");
  cluster.Join("b", 1, {{.run = cluster.RunOf(job), .phase = RunPhase::kRunning}});
  EXPECT_THAT(cluster.Sent("b"), ElementsAre("stop 1/1", "stop 1/1"));
}

TEST(Reactor, AnEndedRunThatIsStillListedIsForgottenAgain) {
  TestCluster cluster;
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn50");
  cluster.BringUp(job);
  cluster.Complete(job);
  cluster.Leave("a");
  cluster.Sent("a");
  cluster.Join("a", 1, {{.run = cluster.RunOf(job), .phase = RunPhase::kGone}});
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("forget 1/1"));
}

TEST(Reactor, ASecondAgentOfTheSameNameIsRefusedAndAReconnectIsNot) {
  TestCluster cluster;
  cluster.Join("a", 1);
  const auto second = cluster.TryJoin("a", 1, "another");
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  EXPECT_TRUE(cluster.TryJoin("a", 1, "agent-of-a").has_value());
}

TEST(Reactor, TheSecondOfTwoGangsWaitsSaysWhyAndStartsByItself) {
  TestCluster cluster;
  cluster.Join("gpu-1", 1).Join("gpu-2", 1);
  const JobId first = cluster.Submit("rn50-a", {.nodes = 2});
  const JobId second = cluster.Submit("rn50-b", {.nodes = 2});
  EXPECT_EQ(cluster.WhyWaits(second),
            "needs 2 nodes with 1 free device each; 0 are free; job 1 (rn50-a) holds gpu-1, gpu-2; position "
            "1 in the "
            "queue");
  cluster.BringUp(first);
  cluster.Complete(first);
  EXPECT_EQ(cluster.Job(second).state, JobState::kStarting);
}

TEST(Reactor, HigherPriorityGoesFirstAndAgeDecidesAmongEquals) {
  TestCluster cluster;
  cluster.Join("a", 1);
  const JobId holder = cluster.Submit("holder", {.preemptible = false});
  const JobId low = cluster.Submit("low", {.priority = -1});
  const JobId early = cluster.Submit("early");
  const JobId late = cluster.Submit("late");
  const JobId high = cluster.Submit("high", {.priority = 5});
  std::vector<JobId> order;
  for (JobId running = holder; order.size() < 4;) {
    cluster.BringUp(running);
    cluster.Complete(running);
    for (const JobId job : {low, early, late, high}) {
      if (cluster.Job(job).state == JobState::kStarting) running = job;
    }
    order.push_back(running);
  }
  EXPECT_THAT(order, ElementsAre(high, early, late, low));
}

TEST(Reactor, ARollbackPutsEverythingBackAndEveryNodeHasToSayHello) {
  TestCluster cluster;
  cluster.Join("a", 1);
  const JobId kept = cluster.Submit("kept");
  Actions actions;
  const JobId undone = cluster.reactor().OnSubmit({.name = "undone"}, cluster.now(), actions);
  EXPECT_TRUE(cluster.reactor().OnCancel(kept, false, "ada", cluster.now(), actions).has_value());
  cluster.reactor().Rollback();
  EXPECT_EQ(cluster.reactor().state().FindJob(undone), nullptr);
  EXPECT_EQ(cluster.Job(kept).state, JobState::kStarting);
  EXPECT_EQ(cluster.Job(kept).run.stop, StopFor::kNothing);
  EXPECT_FALSE(cluster.Node("a").Connected());
  cluster.Join("a", 1);
  cluster.BringUp(kept);
}

TEST(Job, OnlyTheDocumentedChangesAreAllowed) {
  using enum JobState;
  EXPECT_TRUE(MayFollow(kQueued, kStarting));
  EXPECT_TRUE(MayFollow(kRunning, kQueued));
  EXPECT_FALSE(MayFollow(kQueued, kRunning));
  for (const JobState final : {kCompleted, kFailed, kCancelled}) {
    for (const JobState to :
         {kQueued, kStarting, kRunning, kPreempting, kPaused, kCompleted, kFailed, kCancelled}) {
      EXPECT_FALSE(MayFollow(final, to)) << NameOf(final) << " -> " << NameOf(to);
    }
  }
}

TEST(Reactor, ARestartedJobIsNotOvertakenByOnesThatComeAfterIt) {
  TestCluster cluster;
  cluster.Join("a", 1).Join("b", 1);
  const JobId hi = cluster.Submit("hi", {.nodes = 2, .priority = 1000});
  cluster.BringUp(hi);
  const JobId low = cluster.Submit("low", {.priority = -1000});
  cluster.Ends("b", hi, {Killed(1, 9)});
  cluster.Ends("a", hi, {ExitCode(0, 143)});
  ASSERT_EQ(cluster.Job(hi).state, JobState::kQueued);
  EXPECT_THAT(cluster.Job(hi).reason.text, HasSubstr("its place in the queue is kept"));
  EXPECT_EQ(cluster.Job(low).state, JobState::kQueued);
  EXPECT_THAT(cluster.WhyWaits(low), HasSubstr("job 1 (hi) starts again soon and comes first on a, b"));
  cluster.Pass(std::chrono::seconds(2));
  EXPECT_EQ(cluster.Job(hi).state, JobState::kStarting);
  EXPECT_EQ(cluster.Job(low).state, JobState::kQueued);
}

TEST(Reactor, AJobThatFailsOverAndOverLetsOthersGoBeforeIt) {
  TestCluster cluster;
  cluster.Join("a", 1);
  const JobId hi = cluster.Submit("hi", {.priority = 1000});
  const JobId low = cluster.Submit("low", {.priority = -1000});
  for (int i = 0; i < 6; ++i) {
    ASSERT_EQ(cluster.Job(low).state, JobState::kQueued);
    cluster.Pass(std::chrono::seconds(17));
    cluster.BringUp(hi);
    cluster.Ends("a", hi, {Killed(0, 9)});
  }
  EXPECT_THAT(cluster.Job(hi).reason.text, HasSubstr("others may go before it"));
  EXPECT_EQ(cluster.Job(low).state, JobState::kStarting);
}

TEST(Reactor, AGangGoesOnlyOnNodesThatShareItsFolder) {
  TestCluster cluster;
  cluster.filesystem = "one machine";
  cluster.Join("b", 1).Join("c", 1);
  cluster.filesystem = "another";
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 2});
  EXPECT_EQ(cluster.Job(job).reason.text, "placed on b, c; its ranks are being started");
  const JobId second = cluster.Submit("rn50", {.nodes = 2});
  cluster.Join("d", 1);
  EXPECT_EQ(cluster.Job(second).reason.text, "placed on a, d; its ranks are being started")
      << "d joined later";
  const JobId third = cluster.Submit("rn50", {.nodes = 3});
  EXPECT_THAT(cluster.WhyWaits(third), HasSubstr("needs 3 nodes with 1 device each that share /ckpt"));
}

TEST(Reactor, AGangResumesWhereItsCheckpointsAre) {
  TestCluster cluster;
  cluster.filesystem = "one machine";
  cluster.Join("c", 1).Join("d", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 2});
  cluster.BringUp(job);
  cluster.Wrote(job, 10, Generation(1));
  cluster.filesystem = "another";
  cluster.Join("a", 1).Join("b", 1);
  cluster.Ends("c", job, {Killed(0, 9)});
  cluster.Ends("d", job, {ExitCode(1, 143)});
  cluster.Pass(std::chrono::seconds(2));
  EXPECT_EQ(cluster.Job(job).reason.text, "placed on c, d; its ranks are being started");
}

TEST(Reactor, AGangResumesWhereItsCheckpointsAreThoughTheyAreToldLate) {
  TestCluster cluster;
  cluster.filesystem = "one machine";
  cluster.Join("c", 1).Join("d", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 2});
  cluster.BringUp(job);
  cluster.filesystem = "another";
  cluster.Join("a", 1).Join("b", 1);
  cluster.Ends("c", job, {Killed(0, 9)});
  cluster.Ends("d", job, {ExitCode(1, 143)});
  cluster.Wrote(job, 10, Generation(1));
  cluster.Pass(std::chrono::seconds(2));
  EXPECT_EQ(cluster.Job(job).reason.text, "placed on c, d; its ranks are being started");
}

TEST(Reactor, ARunThatWasOverWhenTheDaemonDiedIsConcludedThoughNoNodeComesBack) {
  TestCluster cluster;
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn18");
  cluster.BringUp(job);
  cluster.Ends("a", job, {ExitCode(0, 0)});
  ASSERT_EQ(cluster.Job(job).state, JobState::kRunning) << "its last reports may still be on their way";
  cluster.Restart();
  cluster.Pass(std::chrono::seconds(5));
  EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
}

TEST(Reactor, OfTwoAgentsWithOneIdentityTheSecondIsRefusedWhileTheFirstAnswers) {
  TestCluster cluster;
  cluster.incarnation = "first";
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn50");
  cluster.BringUp(job);
  cluster.incarnation = "of a copy";
  const auto copy = cluster.TryJoin("a", 1, "agent-of-a");
  ASSERT_FALSE(copy);
  EXPECT_EQ(copy.error().code, ErrorCode::kAlreadyExists);
  EXPECT_THAT(copy.error().message, testing::HasSubstr("is connected as node a"));
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
  cluster.incarnation = "first";
  EXPECT_TRUE(cluster.TryJoin("a", 1, "agent-of-a")) << "a newer stream of the same process";
  cluster.Leave("a");
  cluster.incarnation = "second";
  EXPECT_TRUE(cluster.TryJoin("a", 1, "agent-of-a")) << "it was started again";
}

TEST(Reactor, RanksThatMayHaveRunAreNotStartedASecondTimeUnderTheirNumber) {
  for (const char* then : {"first", "second"}) {
    TestCluster cluster;
    cluster.incarnation = "first";
    cluster.Join("a", 1);
    const JobId job = cluster.Submit("rn50");
    cluster.Prepared("a", job);
    cluster.Sent("a");
    cluster.Leave("a");
    cluster.incarnation = then;
    cluster.Join("a", 1);
    if (cluster.incarnation == "first") {
      EXPECT_THAT(cluster.Sent("a"), testing::ElementsAre("prepare 1/1")) << "the command never came to it";
    } else {
      EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
      EXPECT_THAT(cluster.Job(job).reason.text,
                  testing::HasSubstr("restarted when it had been told to start"));
    }
  }
}

}  // namespace
}  // namespace imgd
