// Jobs that do not train: nothing is known of them but their processes.
#include <gmock/gmock.h>

#include <algorithm>

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

using Want = TestCluster::Want;

Want ACommand(Want want = {}) {
  want.kind = JobKind::kCommand;
  return want;
}

/// It had been told to end.
RankExit Told(RankExit exit) {
  exit.told = true;
  return exit;
}

struct Kinds : testing::Test {
  Kinds() { cluster.Join("a", 2).Join("b", 2); }
  JobId Runs(const Want& want) {
    const JobId job = cluster.Submit("sh", want);
    cluster.BringUp(job);
    return job;
  }
  TestCluster cluster;
};

TEST_F(Kinds, ACommandRunsWhenItsProcessesDoAndIsCompletedWhenAllEndWithZero) {
  const JobId job = cluster.Submit("sh", ACommand({.nodes = 2}));
  cluster.Prepared("a", job);
  cluster.Runs("a", job);
  EXPECT_EQ(cluster.Job(job).state, JobState::kStarting);
  cluster.Runs("b", job);
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
  EXPECT_EQ(cluster.Job(job).reason.text, "all 2 processes run");
  cluster.Pass(minutes(60));
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning) << "it owes nobody a sign of life";
  cluster.Ends("a", job, {ExitCode(0, 0)});
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
  cluster.Ends("b", job, {ExitCode(1, 0)});
  EXPECT_EQ(cluster.Job(job).state, JobState::kCompleted);
  EXPECT_EQ(cluster.Job(job).reason.text, "all 2 processes ended with exit code 0");
}

TEST_F(Kinds, AProcessThatEndedBeforeItWasSeenRunsToo) {
  const JobId job = cluster.Submit("sh", ACommand({.nodes = 2}));
  cluster.Prepared("a", job);
  cluster.Ends("a", job, {ExitCode(0, 0)});
  cluster.Runs("b", job);
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
  const JobId quick = cluster.Submit("quick", ACommand());
  cluster.Prepared("a", quick);
  cluster.Ends("a", quick, {ExitCode(0, 0)});
  EXPECT_EQ(cluster.Job(quick).state, JobState::kCompleted);
}

TEST_F(Kinds, OneProcessANodeHasAllDevicesOfTheJobThere) {
  const JobId job = cluster.Submit("torchrun", ACommand({.nodes = 2, .ranks = 2, .per_node = true}));
  cluster.BringUp(job);
  const SendStart& start = cluster.LastStart("b");
  EXPECT_EQ(start.kind, JobKind::kCommand);
  EXPECT_EQ(start.first_rank, 1u);
  EXPECT_EQ(start.ranks, 1u);
  EXPECT_EQ(start.world_size, 2u);
  EXPECT_THAT(start.devices, ElementsAre(0, 1));
  EXPECT_EQ(cluster.Job(job).reason.text, "all 2 processes run");
  cluster.Complete(job);
  EXPECT_EQ(cluster.Job(job).state, JobState::kCompleted);
  EXPECT_EQ(cluster.Job(job).run.exits.size(), 2u);
}

TEST_F(Kinds, OneThatFailsEndsTheGangAndIsTriedAgain) {
  const JobId job = Runs(ACommand({.nodes = 2, .max_restarts = 1}));
  cluster.Ends("a", job, {ExitCode(0, 3, "no such file")});
  // However the other ends when it is told to: it is not the cause.
  cluster.Ends("b", job, {Told(Killed(1, 6, "terminate called"))});
  EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
  EXPECT_THAT(cluster.Job(job).reason.text,
              AllOf(HasSubstr("failure 1 of at most 1"),
                    HasSubstr("rank 0 on node a failed with exit code 3; last error line: no such file")));
  cluster.Pass(seconds(2));
  cluster.BringUp(job);
  cluster.Ends("a", job, {ExitCode(0, 3, "no such file")});
  cluster.Ends("b", job, {Told(ExitCode(1, 0))});
  EXPECT_EQ(cluster.Job(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kRetriesExhausted);
}

TEST_F(Kinds, ExitCodesOfATrainerMeanNothingOfACommand) {
  for (const int code : {2, 10, 11}) {
    const JobId job = Runs(ACommand({.max_restarts = 0}));
    cluster.Ends("a", job, {ExitCode(0, code, "usage: x")});
    EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kRetriesExhausted) << code;
    EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr(fmt::format("failed with exit code {}", code)));
  }
}

TEST_F(Kinds, BadInputOfAConversionIsNotTriedAgain) {
  const JobId job = Runs({.kind = JobKind::kConversion});
  cluster.Ends("a", job, {ExitCode(0, 2, "imgcli: /x holds no data set")});
  EXPECT_EQ(cluster.Job(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kBadInput);
  const JobId good = Runs({.kind = JobKind::kConversion});
  cluster.Complete(good);
  EXPECT_EQ(cluster.Job(good).reason.text, "the data set is converted");
}

TEST_F(Kinds, WhoEndsWithZeroAfterItWasToldToEndIsNotCompleted) {
  const JobId job = Runs(ACommand());
  cluster.Sent("a");
  ASSERT_TRUE(cluster.Pause(job).has_value());
  EXPECT_EQ(cluster.Job(job).state, JobState::kPreempting);
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 1/1")) << "there is nobody to ask for a checkpoint";
  cluster.Ends("a", job, {Told(ExitCode(0, 0))});
  EXPECT_EQ(cluster.Job(job).state, JobState::kPaused);
  EXPECT_EQ(cluster.Job(job).reason.text, "paused by ada; its command begins anew when it starts again");
  ASSERT_TRUE(cluster.Resume(job).has_value());
  cluster.BringUp(job);
  cluster.Complete(job);
  EXPECT_EQ(cluster.Job(job).state, JobState::kCompleted);
}

TEST_F(Kinds, WhoWasAtItsEndBeforeItHeardIsCompleted) {
  const JobId job = Runs(ACommand());
  ASSERT_TRUE(cluster.Pause(job).has_value());
  cluster.Ends("a", job, {ExitCode(0, 0)});
  EXPECT_EQ(cluster.Job(job).state, JobState::kCompleted);
}

TEST_F(Kinds, WhatANodeTellsToEndForReasonsOfItsOwnIsTriedAgain) {
  const JobId job = Runs(ACommand({.nodes = 2}));
  cluster.Sent("b");
  cluster.Ends("a", job, {Told(ExitCode(0, 0))});
  EXPECT_THAT(cluster.Sent("b"), ElementsAre("stop 1/1"));
  cluster.Ends("b", job, {Told(ExitCode(1, 0))});
  EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("rank 0 on node a was told to end there"));
}

TEST_F(Kinds, ACancelEndsItWhateverItsExitCode) {
  for (const auto& exit : {ExitCode(0, 0), ExitCode(0, 1), Killed(0, 15), Killed(0, 9)}) {
    const JobId job = Runs(ACommand());
    cluster.Sent("a");
    ASSERT_TRUE(cluster.Cancel(job, /*checkpoint_first=*/true).has_value());
    EXPECT_THAT(cluster.Sent("a"), ElementsAre(HasSubstr("stop ")));
    cluster.Ends("a", job, {Told(exit)});
    EXPECT_EQ(cluster.Job(job).state, JobState::kCancelled);
  }
}

TEST_F(Kinds, ACancelOfOneThatIsPausedLeavesItNoMoreThanItsGrace) {
  const JobId job = Runs(ACommand());
  ASSERT_TRUE(cluster.Pause(job).has_value());
  cluster.Pass(seconds(1));
  cluster.Sent("a");
  Actions actions;
  ASSERT_TRUE(cluster.reactor().OnCancel(job, false, "bob", cluster.now(), actions).has_value());
  const auto stop = std::find_if(actions.begin(), actions.end(), [](const Action& action) {
    return std::holds_alternative<SendStop>(action);
  });
  ASSERT_NE(stop, actions.end());
  EXPECT_EQ(std::get<SendStop>(*stop).grace_ms, cluster.Job(job).grace_ms);
  cluster.Take(std::move(actions));
  EXPECT_EQ(cluster.LastEvent(job).to, JobState::kPreempting);
  EXPECT_EQ(cluster.LastEvent(job).reason.text, "bob asked for the end; the ranks are being stopped");
  EXPECT_EQ(cluster.LastEvent(job).actor, "user:bob");
  cluster.Sent("a");
  ASSERT_TRUE(cluster.Cancel(job).has_value());
  cluster.Pass(seconds(5));
  EXPECT_THAT(cluster.Sent("a"), IsEmpty()) << "once is enough";
  cluster.Ends("a", job, {Told(Killed(0, 9))});
  EXPECT_EQ(cluster.Job(job).state, JobState::kCancelled);
}

TEST_F(Kinds, ACancelDoesNotPutOffTheEndOfOneThatIsPaused) {
  const JobId job = Runs(ACommand());
  ASSERT_TRUE(cluster.Pause(job).has_value());
  cluster.Pass(std::chrono::milliseconds(GraceForCheckpoint(cluster.Job(job))) - seconds(5));
  cluster.Sent("a");
  ASSERT_TRUE(cluster.Cancel(job).has_value());
  EXPECT_THAT(cluster.Sent("a"), IsEmpty());
}

TEST_F(Kinds, ATimeLimitEndsItWithoutACheckpoint) {
  const JobId job = Runs(ACommand({.time_limit_ms = 60'000}));
  cluster.Sent("a");
  cluster.Pass(seconds(61));
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 1/1"));
  cluster.Ends("a", job, {Told(ExitCode(0, 0))});
  EXPECT_EQ(cluster.Job(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.Job(job).reason.text, "its time_limit of 60 s is over");
}

TEST_F(Kinds, AStartThatRanForLongIsProgress) {
  const auto crash = [this](JobId job, Duration after) {
    cluster.Pass(after);
    cluster.Ends(cluster.Job(job).run.parts.front().node.name(), job, {ExitCode(0, 1, "Traceback: x")});
    for (int i = 0; i < 70 && cluster.Job(job).state == JobState::kQueued; ++i) cluster.Pass(seconds(1));
    if (cluster.Job(job).state == JobState::kStarting) cluster.BringUp(job);
  };
  const JobId slow = Runs(ACommand({.max_restarts = 100}));
  for (int i = 0; i < 6; ++i) crash(slow, kRanForLong);
  EXPECT_EQ(cluster.Job(slow).state, JobState::kRunning);
  EXPECT_EQ(cluster.Job(slow).failures, 6u) << "each counts against max_restarts all the same";
  ASSERT_TRUE(cluster.Cancel(slow).has_value());
  const JobId quick = Runs(ACommand({.max_restarts = 100}));
  for (int i = 0; i < 3; ++i) crash(quick, seconds(5));
  EXPECT_EQ(cluster.Job(quick).reason.code, ReasonCode::kSamePlace);
}

TEST_F(Kinds, AStartIsBoundedThoughNobodySaysThatItTrains) {
  const JobId job = cluster.Submit("sh", ACommand({.nodes = 2}));
  cluster.Prepared("a", job);
  cluster.Runs("a", job);
  cluster.Pass(minutes(11));
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("rank 1 on node b did not begin within 600 s"));
}

TEST_F(Kinds, SignsOfLifeOfWhatItRunsAreNobodysBusiness) {
  const JobId job = Runs(ACommand());
  cluster.Pulses("a", job, {{.rank = 0, .silent = minutes(5), .silence_limit = seconds(15)}});
  cluster.Pass(seconds(1));
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
}

TEST_F(Kinds, ALostNodeStartsItElsewhere) {
  cluster.Join("c", 2);
  const JobId job = Runs(ACommand({.nodes = 2, .max_restarts = 0}));
  cluster.Silence("b");
  cluster.Pass(seconds(50));
  cluster.Ends("a", job, {Told(ExitCode(0, 0))});
  cluster.Pass(seconds(2));
  EXPECT_EQ(cluster.Job(job).state, JobState::kStarting);
  EXPECT_EQ(cluster.Job(job).generation, Generation(2));
}

TEST_F(Kinds, ItsProcessesAreFoundAgainAfterARestartOfTheDaemon) {
  const JobId job = cluster.Submit("sh", ACommand({.nodes = 2}));
  cluster.Prepared("a", job);
  cluster.Runs("a", job);
  cluster.Restart();
  cluster.Join("a", 2, {{.run = cluster.RunOf(job), .phase = RunPhase::kRunning}});
  cluster.Join("b", 2, {{.run = cluster.RunOf(job), .phase = RunPhase::kRunning}});
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
}

}  // namespace
}  // namespace imgd
