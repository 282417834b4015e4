#include <gmock/gmock.h>

#include "server/core/job.h"
#include "server/core/reactor.h"
#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct ByHandRun : testing::Test {
  void SetUp() override { job = cluster.StartedByHand("mine", {"gpu-3", "gpu-4"}); }
  TestCluster cluster;
  JobId job;
};

TEST_F(ByHandRun, RunsFromItsStartAndTakesNothingFromNodes) {
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
  EXPECT_EQ(cluster.Job(job).reason.text, "started by hand on gpu-3 and 1 other host");
  EXPECT_EQ(cluster.Job(job).generation, Generation(1));
  cluster.Join("gpu-3", 1);
  const JobId other = cluster.Submit("rn50");
  EXPECT_EQ(cluster.Job(other).state, JobState::kStarting) << "the devices are free";
  EXPECT_THAT(cluster.reactor().state().active(), ElementsAre(other));
  EXPECT_THAT(cluster.Sent("gpu-3"), ElementsAre("prepare 2/1"));
}

TEST_F(ByHandRun, ItsEventsEndIt) {
  cluster.Started(job, 0);
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
  Actions actions;
  const Checkpoint written{.path = "/ckpt/g3/step10", .step = 10, .generation = Generation(3)};
  cluster.reactor().OnTrainerCheckpoint(cluster.RunOf(job), written, cluster.now(), actions);
  ASSERT_EQ(cluster.Job(job).checkpoints.size(), 1u);
  EXPECT_EQ(cluster.Job(job).checkpoints.front().path, "/ckpt/g3/step10") << "it numbers its starts itself";
  cluster.Finished(job);
  EXPECT_THAT(cluster.History(job), ElementsAre("RUNNING", "COMPLETED"));
  cluster.Failed(job, {.rank = 0, .message = "too late"});
  EXPECT_EQ(cluster.Job(job).state, JobState::kCompleted);
}

TEST_F(ByHandRun, AFailureIsNotTriedAgain) {
  cluster.Failed(job, {.rank = 0, .message = "disk full"});
  EXPECT_EQ(cluster.Job(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.Job(job).reason, (Reason{ReasonCode::kRankFailed, "disk full"}));
  const JobId other = cluster.StartedByHand("bad", {"gpu-3"});
  cluster.Failed(other, {.rank = 0, .message = "no such folder", .bad_input = true});
  EXPECT_EQ(cluster.Job(other).reason.code, ReasonCode::kBadInput);
}

TEST_F(ByHandRun, CannotBeCancelledAndSaysWhatToDo) {
  const auto refused = cluster.Cancel(job);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refused.error().message, HasSubstr("was started by hand on gpu-3"));
  EXPECT_THAT(refused.error().hint, HasSubstr("Ctrl-C"));
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
}

TEST_F(ByHandRun, SilenceEndsItAndItComesBackWhenItIsHeard) {
  cluster.Pass(minutes(4));
  cluster.HeardByHand(job);
  cluster.Pass(minutes(4));
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning) << "it was heard in between";
  cluster.Pass(minutes(2));
  EXPECT_EQ(cluster.Job(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kSilent);
  EXPECT_THAT(cluster.Job(job).reason.text,
              AllOf(HasSubstr("nothing heard from it since 2001-09-09 01:50:40 UTC"), HasSubstr("gpu-3")));
  EXPECT_NE(cluster.Job(job).ended, WallTime{});
  cluster.HeardByHand(job);
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
  EXPECT_EQ(cluster.Job(job).ended, WallTime{});
  EXPECT_THAT(cluster.reactor().state().by_hand(), ElementsAre(job));
  cluster.Finished(job);
  EXPECT_THAT(cluster.History(job), ElementsAre("RUNNING", "FAILED", "RUNNING", "COMPLETED"));
}

TEST_F(ByHandRun, WhatEndedByItselfDoesNotComeBack) {
  cluster.Failed(job, {.rank = 0, .message = "disk full"});
  cluster.HeardByHand(job);
  EXPECT_EQ(cluster.Job(job).state, JobState::kFailed);
}

TEST_F(ByHandRun, TimeWithoutTheDaemonDoesNotCount) {
  cluster.Pass(minutes(4));
  cluster.Restart();
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
  cluster.Pass(minutes(4));
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning) << "it may have tried all the time";
  cluster.Pass(minutes(2));
  EXPECT_EQ(cluster.Job(job).state, JobState::kFailed);
  cluster.Restart();
  cluster.HeardByHand(job);
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning) << "also after a restart";
}

TEST_F(ByHandRun, OneThatIsBackIsNotForgottenWithTheOldOnes) {
  cluster.Pass(minutes(6));
  ASSERT_EQ(cluster.Job(job).state, JobState::kFailed);
  cluster.HeardByHand(job);
  for (size_t i = 0; i <= ClusterState::kEndedKept; ++i) cluster.Finished(cluster.StartedByHand("x", {"h"}));
  ASSERT_NE(cluster.reactor().state().FindJob(job), nullptr);
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
}

TEST_F(ByHandRun, OneThatWasForgottenIsTakenBack) {
  cluster.Pass(minutes(6));
  const JobRecord stored = cluster.Job(job);
  for (size_t i = 0; i <= ClusterState::kEndedKept; ++i) cluster.Finished(cluster.StartedByHand("x", {"h"}));
  ASSERT_EQ(cluster.reactor().state().FindJob(job), nullptr);
  cluster.reactor().Recall(stored);
  cluster.HeardByHand(job);
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
}

TEST_F(ByHandRun, IsOfItsProject) {
  Actions actions;
  const JobId other = cluster.reactor().OnStartedByHand(
      {.name = "x", .project = "vision", .hosts = {"h"}, .token = "t"}, cluster.now(), actions);
  EXPECT_EQ(cluster.Job(other).project, "vision");
  EXPECT_EQ(cluster.Job(job).project, "");
}

TEST_F(ByHandRun, AFailedCommitUndoesItsStart) {
  Actions actions;
  const JobId undone =
      cluster.reactor().OnStartedByHand({.name = "x", .hosts = {"h"}, .token = "t"}, cluster.now(), actions);
  cluster.reactor().Rollback();
  EXPECT_EQ(cluster.reactor().state().FindJob(undone), nullptr);
  EXPECT_THAT(cluster.reactor().state().by_hand(), ElementsAre(job));
}

}  // namespace
}  // namespace imgd
