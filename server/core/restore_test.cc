#include <gmock/gmock.h>

#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Generation kFirst(10'001);

/// A job that ran on node a when the backup was made.
struct Restored : testing::Test {
  void SetUp() override {
    cluster.Join("a", 1).Join("b", 1);
    job = cluster.Submit("rn50", {.max_restarts = 0});
    cluster.BringUp(job);
    cluster.Sent("a");
    cluster.RestoreWith(kFirst);
  }
  TestCluster cluster;
  JobId job;
};

TEST_F(Restored, ARunThatIsStillThereGoesOn) {
  cluster.Join("a", 1, {{.run = cluster.RunOf(job), .phase = RunPhase::kRunning}});
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
  EXPECT_EQ(cluster.Job(job).generation, Generation(1));
  EXPECT_THAT(cluster.Sent("a"), IsEmpty());
  cluster.Complete(job);
  EXPECT_EQ(cluster.Job(job).state, JobState::kCompleted);
}

TEST_F(Restored, ARunThatIsGoneIsStartedAgainByANumberThatNobodyHadAndIsNoFailure) {
  cluster.Join("a", 1);
  cluster.Pass(std::chrono::seconds(5));
  EXPECT_EQ(cluster.Job(job).failures, 0u);
  EXPECT_EQ(cluster.Job(job).state, JobState::kStarting);
  EXPECT_EQ(cluster.Job(job).generation, kFirst);
  EXPECT_THAT(cluster.History(job), Contains("QUEUED"));
}

TEST_F(Restored, TheReasonIsTold) {
  cluster.Join("a", 1);
  cluster.Join("b", 1);
  EXPECT_THAT(
      cluster.Job(job).reason.text,
      HasSubstr("imgd was restored from a backup, and node a does not have the ranks that it had then"));
}

TEST_F(Restored, AStartFromAfterTheBackupIsEnded) {
  cluster.Join("a", 1);
  cluster.Join("b", 1, {{.run = {job, Generation(2)}, .phase = RunPhase::kRunning}});
  EXPECT_THAT(cluster.Sent("b"), Contains(fmt::format("stop {}/2", job)));
}

TEST_F(Restored, AStartThatWasOnlyBeginningIsNotBegunTwiceUnderItsNumber) {
  cluster.Join("a", 1, {{.run = cluster.RunOf(job), .phase = RunPhase::kRunning}});
  const JobId begins = cluster.Submit("begins");
  cluster.Join("b", 1);
  EXPECT_THAT(cluster.Sent("b"), ElementsAre(fmt::format("prepare {}/{}", begins, kFirst)));
  cluster.RestoreWith(Generation(30'001));
  cluster.Join("b", 1);
  cluster.Pass(std::chrono::seconds(5));
  EXPECT_THAT(cluster.Sent("b"), Contains(fmt::format("prepare {}/30001", begins)));
  EXPECT_EQ(cluster.Job(begins).failures, 0u);
}

TEST_F(Restored, StartsAfterTheFirstCountOnFromIt) {
  cluster.Join("a", 1);
  cluster.Pass(std::chrono::seconds(5));
  cluster.Restart();
  cluster.Join("a", 1);
  cluster.Pass(std::chrono::seconds(5));
  EXPECT_GE(cluster.Job(job).generation, kFirst);
  EXPECT_LE(cluster.Job(job).generation, Generation(kFirst.value() + 1));
}

}  // namespace
}  // namespace imgd
