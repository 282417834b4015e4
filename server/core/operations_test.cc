#include <gmock/gmock.h>

#include "server/core/explain.h"
#include "server/core/job.h"
#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAre;

/// Why something was refused; empty when it was not.
std::string Refusal(const Status& status) { return status ? "" : status.error().message; }

/// Nodes a and b with a device each, and a job on a that trains and has a checkpoint of step 70.
struct Operations : testing::Test {
  Operations() {
    cluster.Join("a", 1).Join("b", 1);
    job = cluster.Submit("rn50", {.time_limit_ms = 600'000});
    cluster.BringUp(job);
    cluster.Wrote(job, 70, Generation(1));
    cluster.Sent("a");
    cluster.Decisions();
  }
  /// Its rank is at that step.
  void At(uint64_t step) { cluster.Pulses("a", job, {{.rank = 0, .step = step}}); }
  /// It wrote a checkpoint of that step, as it was asked, and ended.
  void SavesAndEnds(uint64_t step) {
    cluster.Wrote(job, step, cluster.Job(job).generation);
    cluster.Ends("a", job, {ExitCode(0, 11)});
  }
  TestCluster cluster;
  JobId job;
};

TEST_F(Operations, APauseSavesACheckpointFreesTheDevicesAndStays) {
  At(75);
  ASSERT_TRUE(cluster.Pause(job));
  EXPECT_EQ(cluster.Job(job).state, JobState::kPreempting) << "it holds its device until its ranks are gone";
  EXPECT_EQ(cluster.Job(job).reason.text, "paused by ada; a checkpoint is written first");
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("checkpoint-stop 1/1"));
  SavesAndEnds(75);
  EXPECT_EQ(cluster.Job(job).state, JobState::kPaused);
  EXPECT_EQ(cluster.Job(job).reason,
            (Reason{ReasonCode::kPausedByUser, "paused by ada; it goes on from the checkpoint of step 75"}));
  EXPECT_EQ(cluster.LastEvent(job).actor, "user:ada");
  EXPECT_EQ(cluster.Node("a").holders[0], JobId());
  cluster.Pass(seconds(100));
  EXPECT_EQ(cluster.Job(job).state, JobState::kPaused);
}

TEST_F(Operations, AResumedJobGoesOnFromItsCheckpointAndNothingCountsAsFailure) {
  cluster.Pause(job);
  SavesAndEnds(75);
  ASSERT_TRUE(cluster.Resume(job));
  EXPECT_EQ(cluster.Job(job).state, JobState::kStarting);
  cluster.BringUp(job);
  EXPECT_EQ(cluster.LastStart("a").resume_from.front(), "/ckpt/g1/step75");
  EXPECT_EQ(cluster.LastStart("a").last_writer, Generation(1)) << "it may have written one that is unknown";
  EXPECT_EQ(cluster.Job(job).restarts, 0U);
  EXPECT_EQ(cluster.Job(job).failures, 0U);
  EXPECT_THAT(cluster.History(job), ElementsAre("QUEUED", "STARTING", "RUNNING", "PREEMPTING", "PAUSED",
                                                "QUEUED", "STARTING", "RUNNING"));
}

TEST_F(Operations, ThePauseWaitsForTheWordOfTheCheckpointThatWasWritten) {
  cluster.Pause(job);
  cluster.Ends("a", job, {ExitCode(0, 11)});
  EXPECT_EQ(cluster.Job(job).state, JobState::kPreempting) << "its checkpoint has not been told yet";
  cluster.Wrote(job, 75, Generation(1));
  cluster.Pass(seconds(1));
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("checkpoint of step 75"));
  EXPECT_EQ(cluster.Job(job).state, JobState::kPaused);
}

TEST_F(Operations, RanksThatDoNotObeyLoseTheirLastSteps) {
  At(82);
  cluster.Pause(job);
  cluster.Pass(seconds(20));
  cluster.Ends("a", job, {Killed(0, 9)});
  EXPECT_EQ(cluster.Job(job).state, JobState::kPaused);
  EXPECT_EQ(
      cluster.Job(job).reason.text,
      "paused by ada; it goes on from the checkpoint of step 70; 12 steps after it are lost and done again");
}

TEST_F(Operations, ACrashDuringAPauseIsToldAndCountsForNothing) {
  cluster.Pause(job);
  cluster.Ends("a", job, {Killed(0, 11)});
  EXPECT_EQ(cluster.Job(job).state, JobState::kPaused);
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("meanwhile rank 0 on node a was killed by signal 11"));
  EXPECT_EQ(cluster.Job(job).failures, 0U);
}

TEST_F(Operations, AMachineThatRestartsDuringAPauseIsToldAndCountsForNothing) {
  cluster.Pause(job);
  cluster.Ends("a", job, {});
  EXPECT_EQ(cluster.Job(job).state, JobState::kPaused);
  EXPECT_THAT(cluster.Job(job).reason.text,
              HasSubstr("; meanwhile ranks on node a are gone and left no exit status"));
  ASSERT_TRUE(cluster.Resume(job));
  cluster.BringUp(job);
  cluster.Pause(job);
  cluster.Leave("a");
  cluster.Join("a", 1);
  EXPECT_EQ(cluster.Job(job).state, JobState::kPaused);
  EXPECT_THAT(cluster.Job(job).reason.text,
              HasSubstr("; meanwhile node a came back without the ranks that it ran"));
  EXPECT_EQ(cluster.Job(job).failures, 0U);
}

TEST_F(Operations, RanksThatHadNotBegunAreNotMissed) {
  const JobId starts = cluster.Submit("starts");
  cluster.Prepared("b", starts);
  ASSERT_TRUE(cluster.Pause(starts));
  cluster.Ends("b", starts, {});
  EXPECT_EQ(cluster.Job(starts).reason.text, "paused by ada; there is no checkpoint, so it begins anew");
}

TEST_F(Operations, AFailureIsNotForgottenByAPauseThatComesAfterIt) {
  cluster.Join("c", 1);
  const JobId once = cluster.Submit("once", {.nodes = 2, .max_restarts = 0});
  cluster.BringUp(once);
  cluster.Ends("b", once, {Killed(0, 11)});
  ASSERT_TRUE(cluster.Job(once).HoldsDevices()) << "the rank on c has yet to end";
  const auto refused = cluster.Pause(once);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("job 2 cannot be paused: it"));
  EXPECT_EQ(refused.error().hint, "if it is to start again it can be paused while it waits for that");
  cluster.Ends("c", once, {ExitCode(1, 143)});
  EXPECT_EQ(cluster.Job(once).state, JobState::kFailed);
}

TEST_F(Operations, AJobThatFinishesWhileItIsPausedIsFinished) {
  cluster.Pause(job);
  cluster.Complete(job);
  EXPECT_EQ(cluster.Job(job).state, JobState::kCompleted);
}

TEST_F(Operations, BadInputIsFoundDuringAPauseToo) {
  cluster.Pause(job);
  cluster.Ends("a", job, {ExitCode(0, 2)});
  EXPECT_EQ(cluster.Job(job).state, JobState::kFailed);
}

TEST_F(Operations, AJobThatWaitsOrOnlyBeginsIsPausedWithoutACheckpoint) {
  const JobId starts = cluster.Submit("starts");
  cluster.Prepared("b", starts);
  cluster.Sent("b");
  ASSERT_TRUE(cluster.Pause(starts));
  EXPECT_THAT(cluster.Sent("b"), ElementsAre("stop 2/1"));
  cluster.Ends("b", starts, {ExitCode(0, 143)});
  EXPECT_EQ(cluster.Job(starts).state, JobState::kPaused);
  EXPECT_THAT(cluster.Job(starts).reason.text, HasSubstr("there is no checkpoint, so it begins anew"));

  const JobId runs = cluster.Submit("runs");
  cluster.BringUp(runs);
  const JobId waits = cluster.Submit("waits");
  ASSERT_TRUE(cluster.Pause(waits));
  EXPECT_EQ(cluster.Job(waits).reason.text, "paused by ada while it waited");
  cluster.Complete(runs);
  EXPECT_EQ(cluster.Job(waits).state, JobState::kPaused);
}

TEST_F(Operations, APauseGoesOnAfterTheDaemonRestarted) {
  cluster.Pause(job);
  cluster.Restart();
  cluster.Join("a", 1, {{.run = cluster.RunOf(job), .phase = RunPhase::kRunning}});
  EXPECT_THAT(cluster.Sent("a"), Contains("checkpoint-stop 1/1"));
  SavesAndEnds(75);
  EXPECT_EQ(cluster.Job(job).state, JobState::kPaused);
  cluster.Restart();
  cluster.Join("a", 1);
  EXPECT_EQ(cluster.Job(job).state, JobState::kPaused);
  EXPECT_TRUE(cluster.Resume(job));
}

TEST_F(Operations, APausedJobCanBeCancelled) {
  cluster.Pause(job);
  SavesAndEnds(75);
  EXPECT_TRUE(cluster.Cancel(job));
  EXPECT_EQ(cluster.Job(job).state, JobState::kCancelled);
}

TEST_F(Operations, ACancelGoesBeforeAPause) {
  cluster.Pause(job);
  cluster.Cancel(job);
  EXPECT_THAT(Refusal(cluster.Pause(job)), HasSubstr("cannot be paused: it is being cancelled by ada"));
  cluster.Ends("a", job, {ExitCode(0, 143)});
  EXPECT_EQ(cluster.Job(job).state, JobState::kCancelled);
}

TEST_F(Operations, WhatMakesNoSenseIsRefusedWithWords) {
  EXPECT_EQ(Refusal(cluster.Resume(job)), "job 1 is not paused: it is RUNNING");
  EXPECT_EQ(Refusal(cluster.Pause(JobId(9))), "there is no job 9");
  cluster.Pause(job);
  EXPECT_EQ(Refusal(cluster.Pause(job)), "job 1 cannot be paused: it is being paused by ada");
  EXPECT_THAT(Refusal(cluster.Resume(job)), HasSubstr("still being paused"));
  EXPECT_EQ(Refusal(cluster.Move(job)), "job 1 cannot be moved: it is being paused by ada");
  SavesAndEnds(75);
  EXPECT_EQ(Refusal(cluster.Pause(job)), "job 1 is paused already");
  EXPECT_EQ(Refusal(cluster.Move(job)), "job 1 cannot be moved: it is PAUSED");
  cluster.Cancel(job);
  EXPECT_EQ(Refusal(cluster.Pause(job)), "job 1 cannot be paused: it has ended already (CANCELLED)");
  EXPECT_EQ(Refusal(cluster.SetPriority(job, 3)),
            "job 1 cannot be given another priority: it has ended already (CANCELLED)");
  const JobId hand = cluster.StartedByHand("mine", {"laptop"});
  EXPECT_THAT(Refusal(cluster.Pause(hand)), HasSubstr("it was started by hand on laptop"));
}

TEST_F(Operations, AMovedJobStartsElsewhere) {
  ASSERT_TRUE(cluster.Move(job));
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("checkpoint-stop 1/1"));
  SavesAndEnds(75);
  EXPECT_EQ(cluster.Job(job).state, JobState::kStarting);
  EXPECT_EQ(cluster.Job(job).run.parts.front().node, NodeId("b"));
  EXPECT_EQ(cluster.Job(job).restarts, 0U);
  EXPECT_THAT(cluster.Job(job).avoid, IsEmpty()) << "only its next start avoids them";
}

TEST_F(Operations, AMovedJobWaitsRatherThanGoBack) {
  const JobId other = cluster.Submit("other");
  cluster.BringUp(other);
  cluster.Move(job);
  SavesAndEnds(75);
  EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
  EXPECT_THAT(cluster.WhyWaits(job), AllOf(HasSubstr("0 are free"), HasSubstr("job 2 (other) holds b"),
                                           HasSubstr("it is not to start on a again")));
  cluster.Restart();
  cluster.Join("a", 1);
  cluster.Join("b", 1, {{.run = cluster.RunOf(other), .phase = RunPhase::kRunning}});
  EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
  cluster.Complete(other);
  EXPECT_EQ(cluster.Job(job).run.parts.front().node, NodeId("b"));
}

TEST_F(Operations, AJobIsNotMovedWhereNothingElseCouldHoldIt) {
  ASSERT_TRUE(cluster.SetAside("b", false));
  EXPECT_EQ(Refusal(cluster.Move(job)),
            "job 1 cannot be moved: it needs 1 node with 1 device each besides a; none could hold it");
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
}

TEST_F(Operations, ThePriorityMovesAJobInTheQueue) {
  cluster.BringUp(cluster.Submit("other"));
  const JobId first = cluster.Submit("first");
  const JobId second = cluster.Submit("second");
  ASSERT_TRUE(cluster.SetPriority(second, 5));
  EXPECT_EQ(cluster.reactor().state().queue().front().id, second);
  EXPECT_THAT(cluster.Job(first).reason.text, HasSubstr("job 1 (rn50) holds a"));
  EXPECT_EQ(cluster.Job(second).reason.code, ReasonCode::kWaitsForDevices);
  Actions actions;
  ASSERT_TRUE(cluster.reactor().OnSetPriority(first, 7, "bob", cluster.now(), actions));
  const auto& event = std::get<AppendEvent>(actions.front());
  EXPECT_EQ(event.reason, (Reason{ReasonCode::kChangedByUser, "priority 7 instead of 0, by bob"}));
  EXPECT_EQ(event.actor, "user:bob");
  EXPECT_EQ(event.from, event.to);
}

TEST_F(Operations, ALongerTimeLimitKeepsAJobRunning) {
  cluster.Pass(seconds(599));
  ASSERT_TRUE(cluster.SetTimeLimit(job, {.by_ms = 60'000}));
  EXPECT_EQ(cluster.LastEvent(job).reason.text, "time_limit 660 s instead of 600 s, by ada");
  cluster.Pass(seconds(30));
  EXPECT_THAT(cluster.Sent("a"), IsEmpty());
  cluster.Pass(seconds(31));
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("checkpoint-stop 1/1"));
  EXPECT_THAT(Refusal(cluster.SetTimeLimit(job, {.by_ms = 60'000})), HasSubstr("its time_limit is over"));
}

TEST_F(Operations, ATimeLimitCanBeShorterButNotThanWhatIsUsed) {
  cluster.Pass(seconds(100));
  EXPECT_THAT(Refusal(cluster.SetTimeLimit(job, {.by_ms = -520'000})),
              HasSubstr("a time_limit of 80 s: it has held its devices for 100 s"));
  EXPECT_THAT(Refusal(cluster.SetTimeLimit(job, {.by_ms = -600'000})),
              HasSubstr("cannot have 10 min less: its time_limit is 10 min, and a second is the least"));
  ASSERT_TRUE(cluster.SetTimeLimit(job, {.to_ms = 120'000}));
  cluster.Pass(seconds(20));
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("checkpoint-stop 1/1"));
}

TEST_F(Operations, ATimeLimitCanBeTakenAwayAndGiven) {
  ASSERT_TRUE(cluster.SetTimeLimit(job, {.to_ms = 0}));
  EXPECT_THAT(Refusal(cluster.SetTimeLimit(job, {.by_ms = 1000})), HasSubstr("has no time_limit"));
  ASSERT_TRUE(cluster.SetTimeLimit(job, {.to_ms = 700'000}));
  const JobId waits = cluster.Submit("waits", {.nodes = 2, .time_limit_ms = 60'000});
  ASSERT_TRUE(cluster.SetTimeLimit(waits, {.by_ms = 60'000}));
  EXPECT_EQ(cluster.reactor().state().queue().front().most, seconds(120 + 10 + 120)) << "with grace";
}

TEST_F(Operations, AJobWhoseTimeIsUsedUpIsResumedAfterItWasExtended) {
  cluster.Pass(seconds(599));
  cluster.Pause(job);
  cluster.Pass(seconds(5));
  SavesAndEnds(75);
  EXPECT_THAT(Refusal(cluster.Resume(job)), HasSubstr("its time_limit of 10 min is used up"));
  ASSERT_TRUE(cluster.SetTimeLimit(job, {.by_ms = 600'000}));
  EXPECT_TRUE(cluster.Resume(job));
}

TEST_F(Operations, OnACordonedNodeWhatRunsGoesOnAndNothingNewIsPlaced) {
  ASSERT_TRUE(cluster.SetAside("a", false, "bad fan"));
  cluster.BringUp(cluster.Submit("other"));
  const JobId waits = cluster.Submit("waits");
  EXPECT_THAT(cluster.Sent("a"), IsEmpty());
  cluster.Complete(job);
  EXPECT_EQ(cluster.Job(waits).state, JobState::kQueued);
  EXPECT_THAT(cluster.WhyWaits(waits), HasSubstr("node a is cordoned by ada: bad fan"));
  ASSERT_TRUE(cluster.Return("a", false));
  EXPECT_EQ(cluster.Job(waits).state, JobState::kStarting);
}

TEST_F(Operations, ADrainedNodesRunsGoElsewhereThroughACheckpoint) {
  At(75);
  ASSERT_TRUE(cluster.SetAside("a", true, "bad fan"));
  EXPECT_EQ(cluster.Job(job).state, JobState::kPreempting);
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("checkpoint-stop 1/1"));
  EXPECT_EQ(ExplainNode(cluster.Node("a")), "is drained by ada: bad fan (1 job still there)");
  EXPECT_THAT(cluster.Decisions(), ElementsAre("node a is drained by ada: bad fan"));
  SavesAndEnds(75);
  EXPECT_EQ(cluster.Job(job).run.parts.front().node, NodeId("b"));
  EXPECT_EQ(cluster.Job(job).failures + cluster.Job(job).restarts, 0U);
  EXPECT_EQ(ExplainNode(cluster.Node("a")), "is drained by ada: bad fan");
  EXPECT_THAT(cluster.Decisions(), ElementsAre("node a is drained and empty: nothing runs there"));
  EXPECT_THAT(cluster.History(job),
              ElementsAre("QUEUED", "STARTING", "RUNNING", "PREEMPTING", "QUEUED", "STARTING"));
}

TEST_F(Operations, WhatWaitsForADrainedNodeSaysSo) {
  cluster.SetAside("b", true, "bad fan");
  const JobId waits = cluster.Submit("waits");
  EXPECT_THAT(cluster.WhyWaits(waits), HasSubstr("node b is drained by ada: bad fan"));
}

TEST_F(Operations, ADrainedNodeStaysSoOverRestartsAndJoiningAgain) {
  cluster.SetAside("b", true, "bad fan");
  cluster.Decisions();
  cluster.Restart();
  cluster.Join("b", 1);
  EXPECT_EQ(ExplainNode(cluster.Node("b")), "is drained by ada: bad fan");
  EXPECT_THAT(cluster.Decisions(), Not(Contains(HasSubstr("empty")))) << "it was said before";
  EXPECT_EQ(cluster.Job(cluster.Submit("waits")).state, JobState::kQueued);
}

TEST_F(Operations, ADrainedNodeOutOfReachIsNotCalledEmpty) {
  cluster.Leave("b");
  cluster.SetAside("b", true);
  EXPECT_THAT(cluster.Decisions(), ElementsAre("node b is drained by ada"));
  EXPECT_EQ(ExplainNode(cluster.Node("b")), "is drained by ada; it is not connected");
  cluster.Join("b", 1);
  EXPECT_THAT(cluster.Decisions(), ElementsAre("node b is drained and empty: nothing runs there"));
}

TEST_F(Operations, NothingIsReservedOnANodeThatIsSetAside) {
  cluster.SetAside("b", false);
  const JobId waits = cluster.Submit("waits");
  EXPECT_THAT(cluster.Decisions(), Contains(HasSubstr("1 device on a is kept for job 2 (waits)")));
  EXPECT_EQ(cluster.Job(waits).state, JobState::kQueued);
}

TEST_F(Operations, SettingANodeAsideTwiceOrReturningItInVainIsRefused) {
  EXPECT_EQ(Refusal(cluster.SetAside("x", true)), "there is no node x");
  EXPECT_EQ(Refusal(cluster.Return("b", true)), "node b is not drained");
  cluster.SetAside("b", false, "look at it");
  EXPECT_EQ(Refusal(cluster.SetAside("b", false)), "node b is cordoned by ada: look at it already");
  EXPECT_EQ(Refusal(cluster.Return("b", true)), "node b is not drained; it is cordoned by ada: look at it");
  ASSERT_TRUE(cluster.SetAside("b", true)) << "a cordoned node may be drained";
  EXPECT_EQ(Refusal(cluster.SetAside("b", false)), "node b is drained by ada already");
  EXPECT_TRUE(cluster.Return("b", true));
  EXPECT_TRUE(cluster.Node("b").Usable());
}

TEST(Decisions, NodesThatComeAndGoAreToldOnce) {
  TestCluster cluster;
  cluster.Join("a", 2);
  EXPECT_THAT(cluster.Decisions(), ElementsAre("node a has joined with 2 devices"));
  cluster.Silence("a");
  cluster.Pass(seconds(10));
  EXPECT_THAT(cluster.Decisions(), ElementsAre(HasSubstr("node a is out of reach")));
  Actions actions;
  cluster.reactor().OnHeard(NodeId("a"), cluster.now());
  cluster.reactor().Schedule(cluster.now(), actions);
  cluster.Take(std::move(actions));
  EXPECT_THAT(cluster.Decisions(), ElementsAre("node a is heard again"));
  cluster.Pass(seconds(60));
  EXPECT_THAT(cluster.Decisions(), ElementsAre(HasSubstr("out of reach"), HasSubstr("node a is lost")));
  cluster.Join("a", 1);
  EXPECT_THAT(cluster.Decisions(), ElementsAre("node a is back with 1 device; it had 2"));
}

TEST(Decisions, AReservationAndWhatGoesBesideItAreTold) {
  TestCluster cluster;
  cluster.Join("a", 1).Join("b", 1).Join("c", 1);
  const JobId runs = cluster.Submit("runs", {.nodes = 2, .time_limit_ms = 60'000});
  cluster.BringUp(runs);
  cluster.Decisions();
  const JobId big = cluster.Submit("big", {.nodes = 2});
  EXPECT_THAT(cluster.Decisions(),
              ElementsAre(AllOf(HasSubstr("2 devices on "),
                                HasSubstr("are kept for job 2 (big), which can start in "))));
  EXPECT_EQ(cluster.LastEvent(big).reason.code, ReasonCode::kWaitsForDevices);
  const JobId small = cluster.Submit("small", {.time_limit_ms = 10'000});
  EXPECT_EQ(cluster.Job(small).state, JobState::kStarting);
  EXPECT_EQ(cluster.Job(small).reason,
            (Reason{ReasonCode::kBackfilled,
                    "placed on c, beside what is kept for job 2 (big), which comes first"}));
  EXPECT_THAT(cluster.Decisions(), IsEmpty()) << "the same is kept as before";
  ASSERT_TRUE(cluster.SetTimeLimit(runs, {.by_ms = 600'000}));
  EXPECT_THAT(cluster.Decisions(), ElementsAre(HasSubstr("the latest; before it could in ")));
}

TEST(Decisions, WhoseStartIsPutOffIsToldWhoComesBeforeIt) {
  TestCluster cluster;
  cluster.Join("a", 2).Join("b", 1);
  const JobId runs = cluster.Submit("runs", {.ranks = 2, .time_limit_ms = 60'000, .preemptible = false});
  cluster.BringUp(runs);
  const JobId gang = cluster.Submit("gang", {.nodes = 2});
  cluster.Decisions();
  const JobId urgent = cluster.Submit("urgent", {.ranks = 2, .priority = 9});
  ASSERT_EQ(cluster.Job(urgent).state, JobState::kQueued);
  EXPECT_THAT(cluster.Decisions(),
              UnorderedElementsAre(HasSubstr("kept for job 3 (urgent)"),
                                   AllOf(StartsWith("2 devices on a, b are kept for job 2 (gang)"),
                                         HasSubstr("; before it could in "),
                                         EndsWith("; job 3 (urgent) comes before it now"))));
  cluster.Pass(seconds(1));
  EXPECT_THAT(cluster.Decisions(), IsEmpty()) << "it is told once";
  const JobId later = cluster.Submit("later");
  EXPECT_EQ(cluster.Job(later).state, JobState::kQueued) << "b is kept for the gang";
  cluster.Complete(runs);
  EXPECT_EQ(cluster.Job(urgent).state, JobState::kStarting);
  cluster.BringUp(urgent);
  cluster.Complete(urgent);
  EXPECT_EQ(cluster.Job(gang).state, JobState::kStarting);
}

TEST(Decisions, WhatIsReservedIsSoAgainWhenANodeIsBack) {
  TestCluster cluster;
  cluster.Join("a", 2).Join("b", 1);
  const JobId runs = cluster.Submit("runs", {.ranks = 2, .time_limit_ms = 60'000, .preemptible = false});
  cluster.BringUp(runs);
  const JobId gang = cluster.Submit("gang", {.nodes = 2});
  cluster.Submit("urgent", {.ranks = 2, .priority = 9});
  const JobId later = cluster.Submit("later");
  cluster.Decisions();
  ASSERT_TRUE(cluster.SetAside("b", false, "looks odd"));
  EXPECT_THAT(cluster.Decisions(),
              Contains("nothing is kept for job 2 (gang) any more; node b is cordoned by ada: looks odd"));
  EXPECT_EQ(cluster.LastEvent(gang).reason.code, ReasonCode::kWaitsForDevices);
  ASSERT_TRUE(cluster.Return("b", false));
  EXPECT_EQ(cluster.Job(later).state, JobState::kQueued);
  EXPECT_THAT(cluster.Decisions(), Contains(HasSubstr("are kept for job 2 (gang)")));
}

TEST(Decisions, WhatComesFreeForARetryIsStillKeptForIt) {
  TestCluster cluster;
  cluster.Join("a", 1).Join("b", 1);
  const JobId runs = cluster.Submit("runs", {.priority = 9, .time_limit_ms = 60'000});
  cluster.BringUp(runs);
  const JobId fails = cluster.Submit("fails");
  cluster.BringUp(fails);
  const std::string node = cluster.Job(fails).run.parts.front().node.name();
  ASSERT_TRUE(cluster.SetAside(node, false, "looks odd"));
  cluster.Failed(fails, {.rank = 0, .message = "label 1000 is out of range"});
  cluster.Ends(node, fails, {ExitCode(0, 1)});
  EXPECT_THAT(cluster.Decisions(), Contains(HasSubstr("is kept for job 2 (fails)")));
  cluster.Complete(runs);
  EXPECT_EQ(cluster.Job(fails).reason.code, ReasonCode::kBackoff);
  EXPECT_THAT(cluster.Decisions(), testing::Each(testing::Not(HasSubstr("any more"))));
  cluster.Pass(seconds(5));
  EXPECT_EQ(cluster.Job(fails).state, JobState::kStarting);
}

TEST(Extending, WhatWasPlacedBesideWhatIsKeptEndsBeforeThatIsNeeded) {
  TestCluster cluster;
  cluster.Join("a", 1).Join("b", 1);
  const JobId runs = cluster.Submit("runs", {.time_limit_ms = 300'000});
  cluster.BringUp(runs);
  cluster.Pass(seconds(1));
  const JobId big = cluster.Submit("big", {.nodes = 2});
  cluster.Pass(seconds(1));
  const JobId small = cluster.Submit("small", {.time_limit_ms = 60'000});
  EXPECT_EQ(cluster.Job(small).reason.code, ReasonCode::kBackfilled);
  cluster.BringUp(small);
  EXPECT_THAT(Refusal(cluster.SetTimeLimit(small, {.by_ms = 600'000})),
              HasSubstr("job 3 cannot run longer than until job 2 (big) can start, in "));
  EXPECT_THAT(Refusal(cluster.SetTimeLimit(small, {.to_ms = 0})), HasSubstr("which comes first"));
  EXPECT_TRUE(cluster.SetTimeLimit(small, {.by_ms = 60'000})) << "that is in time";
  EXPECT_TRUE(cluster.SetTimeLimit(runs, {.by_ms = 600'000})) << "it was there before job 2 came";
  EXPECT_EQ(cluster.Job(big).state, JobState::kQueued);
}

TEST(Forgetting, OnlyALostNodeWithoutARunIsForgottenAndItMayComeBackAsANewOne) {
  TestCluster cluster({.lost_after = seconds(45)});
  cluster.Join("a", 1).Join("b", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 2});
  cluster.BringUp(job);
  EXPECT_THAT(Refusal(cluster.Forget("b")), HasSubstr("it is not lost"));
  EXPECT_EQ(cluster.Forget("c").error().code, ErrorCode::kNotFound);
  cluster.Silence("b");
  cluster.Pass(seconds(60));
  ASSERT_EQ(cluster.Node("b").state, NodeState::kLost);
  EXPECT_THAT(Refusal(cluster.Forget("b")), HasSubstr("job 1 ran there last"));
  cluster.Ends("a", job, {ExitCode(0, 1)});
  EXPECT_THAT(Refusal(cluster.Forget("b")), HasSubstr("job 1 ran there last"))
      << "its checkpoints may be only there";
  ASSERT_TRUE(cluster.Cancel(job));
  cluster.Decisions();
  ASSERT_TRUE(cluster.Forget("b"));
  EXPECT_THAT(cluster.Decisions(), Contains("node b was lost and is forgotten, by ada"));
  EXPECT_EQ(cluster.reactor().state().FindNode(NodeId("b")), nullptr);
  cluster.Restart();
  EXPECT_EQ(cluster.reactor().state().FindNode(NodeId("b")), nullptr);
  cluster.Join("b", 1);
  EXPECT_EQ(cluster.Node("b").state, NodeState::kReady);
}

TEST(Forgetting, IsUndoneWhereItCannotBeStored) {
  TestCluster cluster({.lost_after = seconds(45)});
  cluster.Join("a", 1).Join("b", 1);
  cluster.Silence("b");
  cluster.Pass(seconds(60));
  cluster.FailCommit(
      [&](Actions& out) { ASSERT_TRUE(cluster.reactor().OnForget(NodeId("b"), "ada", cluster.now(), out)); });
  EXPECT_EQ(cluster.Node("b").state, NodeState::kLost);
}

TEST(Forgetting, NodesThatWereLostForLongGoByThemselvesButForThoseThatSomebodySetAside) {
  TestCluster cluster({.lost_after = seconds(45), .lost_nodes_kept_for = std::chrono::hours(3)});
  cluster.Join("a", 1).Join("b", 1).Join("c", 1);
  ASSERT_TRUE(cluster.SetAside("c", false, "bad fan"));
  for (const char* node : {"b", "c"}) {
    cluster.Silence(node);
    cluster.Pass(seconds(60));
  }
  cluster.Pass(std::chrono::hours(2));
  EXPECT_EQ(cluster.Node("b").state, NodeState::kLost);
  cluster.Decisions();
  cluster.Pass(std::chrono::hours(3));
  EXPECT_EQ(cluster.reactor().state().FindNode(NodeId("b")), nullptr);
  EXPECT_THAT(cluster.Decisions(), Contains("node b was lost long ago and is forgotten"));
  EXPECT_EQ(cluster.Node("c").state, NodeState::kLost);
  EXPECT_EQ(cluster.Node("a").state, NodeState::kReady);

  // It joined five hours ago, and was heard until imgd ended.
  cluster.Restart();
  cluster.Pass(seconds(60));
  EXPECT_EQ(cluster.Node("a").state, NodeState::kLost);
  cluster.Pass(std::chrono::hours(2));
  EXPECT_EQ(cluster.Node("a").state, NodeState::kLost) << "not forgotten yet";
}

}  // namespace
}  // namespace imgd
