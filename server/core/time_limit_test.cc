#include <gmock/gmock.h>

#include "server/core/job.h"
#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct TimeLimit : testing::Test {
  TimeLimit() {
    cluster.Join("a", 1);
    job = cluster.Submit("short", {.time_limit_ms = 60'000});
    cluster.BringUp(job);
    cluster.Sent("a");
  }
  TestCluster cluster;
  JobId job;
};

TEST_F(TimeLimit, WhenItIsOverALastCheckpointIsWrittenAndTheJobHasFailed) {
  cluster.Pass(std::chrono::seconds(59));
  EXPECT_THAT(cluster.Sent("a"), IsEmpty());
  cluster.Pass(std::chrono::seconds(1));
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("checkpoint-stop 1/1"));
  cluster.Wrote(job, 70, Generation(1));
  cluster.Ends("a", job, {ExitCode(0, 11)});
  EXPECT_EQ(cluster.Job(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kTimeLimit);
  EXPECT_EQ(cluster.Job(job).reason.text,
            "its time_limit of 60 s is over; its newest checkpoint is of step 70");
}

TEST_F(TimeLimit, TheCheckpointMayTakeTwoMinutes) {
  cluster.Pass(std::chrono::seconds(60 + 119));
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("checkpoint-stop 1/1"));
  EXPECT_EQ(cluster.LastStop("a").grace_ms, 120'000) << "the node leaves it that time, too";
  cluster.Pass(std::chrono::seconds(1));
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 1/1"));
  EXPECT_EQ(cluster.LastStop("a").grace_ms, 10'000);
  cluster.Ends("a", job, {ExitCode(0, 143)});
  EXPECT_EQ(cluster.Job(job).reason.text, "its time_limit of 60 s is over; there is no checkpoint");
}

TEST_F(TimeLimit, SoMayTheOneThatACancelAsksFor) {
  ASSERT_TRUE(cluster.Cancel(job, /*checkpoint_first=*/true));
  cluster.Pass(std::chrono::seconds(119));
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("checkpoint-stop 1/1"));
  EXPECT_EQ(cluster.LastStop("a").grace_ms, 120'000);
  cluster.Pass(std::chrono::seconds(1));
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 1/1"));
  EXPECT_EQ(cluster.LastStop("a").grace_ms, 10'000);
}

TEST_F(TimeLimit, ACancelDoesNotPutTheEndOff) {
  cluster.Pass(std::chrono::seconds(60 + 50));
  ASSERT_TRUE(cluster.Cancel(job, /*checkpoint_first=*/true));
  cluster.Pass(std::chrono::seconds(69));
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("checkpoint-stop 1/1"));
  cluster.Pass(std::chrono::seconds(1));
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 1/1"));
}

TEST_F(TimeLimit, AllStartsCountTogether) {
  cluster.Pass(std::chrono::seconds(40));
  cluster.Ends("a", job, {Killed(0, 9)});
  cluster.Pass(std::chrono::seconds(2));  // the retry waits a second, which is not counted
  cluster.BringUp(job);
  cluster.Sent("a");
  cluster.Restart();
  cluster.Join("a", 1, {{.run = cluster.RunOf(job), .phase = RunPhase::kRunning}});
  cluster.Pass(std::chrono::seconds(17));
  EXPECT_THAT(cluster.Sent("a"), IsEmpty());
  cluster.Pass(std::chrono::seconds(3));
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("checkpoint-stop 1/2"));
}

TEST_F(TimeLimit, AJobThatEndsInTimeIsFinished) {
  cluster.Pass(std::chrono::seconds(59));
  cluster.Complete(job);
  EXPECT_EQ(cluster.Job(job).state, JobState::kCompleted);
}

/// The training came to its end in time, while imgd was away until the limit was over.
struct EndedWhileAway : TimeLimit {
  EndedWhileAway() {
    cluster.SetClockAhead(std::chrono::minutes(2));
    cluster.Restart();
  }
  /// What its last events say comes only after this.
  void NodeIsBack() {
    cluster.Join("a", 1, {{.run = cluster.RunOf(job), .phase = RunPhase::kGone, .exits = {ExitCode(0, 0)}}});
    EXPECT_FALSE(IsFinal(cluster.Job(job).state));
  }
};

TEST_F(EndedWhileAway, ItIsFinishedThoughTheTimeIsOver) {
  cluster.Pass(std::chrono::seconds(1));
  ASSERT_EQ(cluster.Job(job).run.stop, StopFor::kTimeLimit);
  NodeIsBack();
  cluster.Finished(job);
  EXPECT_EQ(cluster.Job(job).state, JobState::kCompleted);
}

TEST_F(EndedWhileAway, ItIsFinishedThoughSomebodyPausedItMeanwhile) {
  ASSERT_TRUE(cluster.Pause(job));
  NodeIsBack();
  cluster.Finished(job);
  EXPECT_EQ(cluster.Job(job).state, JobState::kCompleted);
}

TEST_F(EndedWhileAway, WhereItsTrainerSaysNothingOfThatItIsNotWaitedForLong) {
  cluster.Pass(std::chrono::seconds(1));
  NodeIsBack();
  cluster.Pass(std::chrono::seconds(3));
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kTimeLimit);
}

TEST_F(TimeLimit, WhatIsLeftIsWhatAStartTakesAtMost) {
  const JobId waits = cluster.Submit("waits", {.time_limit_ms = 5'000});
  ASSERT_EQ(cluster.reactor().state().queue().size(), 1U);
  EXPECT_EQ(cluster.reactor().state().queue()[0].most, std::chrono::seconds(5 + 10 + 120)) << "with grace";
  EXPECT_THAT(cluster.WhyWaits(waits), HasSubstr("it can start in 3 min at the latest"));
}

TEST_F(TimeLimit, WhatItLetTheNextOneExpectIsNotPutOffByTheStop) {
  cluster.Submit("waits");
  ASSERT_FALSE(cluster.reactor().reserved().empty());
  const auto promised = cluster.reactor().reserved().front().from;
  ASSERT_TRUE(promised);
  cluster.Pass(std::chrono::milliseconds(300));
  cluster.Pass(std::chrono::seconds(60));
  ASSERT_THAT(cluster.Sent("a"), ElementsAre("checkpoint-stop 1/1"));
  cluster.Submit("has it planned anew");
  EXPECT_EQ(cluster.reactor().reserved().front().from, promised);
}

TEST(GraceForCheckpoint, IsLongerForALastOneAndOnlyWhereOneIsWritten) {
  JobRecord job{.grace_ms = 30'000};
  const auto grace_ms = [&job](StopFor stop, bool checkpoint_first) {
    job.run.stop = stop;
    job.run.checkpoint_first = checkpoint_first;
    return GraceForCheckpoint(job);
  };
  EXPECT_EQ(grace_ms(StopFor::kPause, true), 60'000);
  EXPECT_EQ(grace_ms(StopFor::kTimeLimit, true), 120'000);
  EXPECT_EQ(grace_ms(StopFor::kCancel, true), 120'000);
  EXPECT_EQ(grace_ms(StopFor::kTimeLimit, false), 30'000) << "as a program's";
  job.grace_ms = 300'000;
  EXPECT_EQ(grace_ms(StopFor::kTimeLimit, true), 120'000) << "it is over";
  EXPECT_EQ(TimeForLastCheckpoint(job), std::chrono::minutes(2));
  EXPECT_EQ(grace_ms(StopFor::kCancel, true), 300'000)
      << "who cancels waits for as long as the job asked for";
  EXPECT_EQ(TimeForLastCheckpoint(job), std::chrono::minutes(5));
}

TEST(LongestStart, AProgramHasNoCheckpointToWriteAtItsEnd) {
  JobRecord job{.grace_ms = 30'000, .time_limit_ms = 60'000};
  EXPECT_EQ(LongestStart(job), std::chrono::seconds(60 + 30 + 120));
  job.kind = JobKind::kCommand;
  EXPECT_EQ(LongestStart(job), std::chrono::seconds(60 + 2 * 30 + 5));
}

}  // namespace
}  // namespace imgd
