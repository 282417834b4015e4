#include <gmock/gmock.h>

#include "server/core/explain.h"
#include "server/core/testing/retries.h"

namespace imgd {
namespace {

using std::chrono::seconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using LogPatterns = Retries;

TEST_F(LogPatterns, APatternMaySetTheNodeAsideAtOnceAndTheJobIsNotBlamed) {
  cluster.Join("a", 1).Join("b", 1);
  const JobId job = cluster.Submit("rn50", {.max_restarts = 0});
  Crash(job, 57, Match(PatternAction::kExcludeNode));
  EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
  EXPECT_EQ(cluster.Job(job).failures, 0u);
  EXPECT_THAT(cluster.Job(job).reason.text,
              HasSubstr("; its log says \"a line\": it is broken (pattern p); node a is set aside"));
  EXPECT_THAT(
      ExplainNode(cluster.Node("a")),
      HasSubstr(
          "is set aside by imgd: job 1 (rn50) failed there, and its log says \"a line\": it is broken"));
  BringUp(job);
  EXPECT_EQ(NodeOf(job), "b");
}

TEST_F(LogPatterns, ANodeThatALineToldOfStaysSetAsideWhateverBecomesOfTheJob) {
  cluster.Join("a", 1).Join("b", 1).Join("c", 1);
  const JobId job = cluster.Submit("rn50");
  Crash(job, 57);
  EXPECT_EQ(Crash(job, 57, Match(PatternAction::kExcludeNode)), "a");
  EXPECT_EQ(Crash(job, 57), "b");
  EXPECT_TRUE(cluster.Node("a").set_aside) << "the memory of its GPU is as broken as before";
}

TEST_F(LogPatterns, ALineExcludesTheSecondNodeTooThatTheJobFailsOn) {
  cluster.Join("a", 1).Join("b", 1).Join("c", 1);
  const JobId job = cluster.Submit("rn50");
  EXPECT_EQ(Crash(job, 57), "a");
  EXPECT_EQ(Crash(job, 57), "a");
  EXPECT_EQ(Crash(job, 58, Match(PatternAction::kExcludeNode)), "b");
  EXPECT_TRUE(cluster.Node("b").set_aside);
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("node b is set aside"));
  EXPECT_THAT(cluster.Node("a").strikes, ElementsAre(Strike{job, "rn50"})) << "of a the line says nothing";
}

TEST_F(LogPatterns, AJobWhoseLogSpeaksOfASecondNodeIsAtFaultItself) {
  cluster.Join("a", 1).Join("b", 1).Join("c", 1).Join("d", 1);
  const auto sick = Match(PatternAction::kExcludeNode);
  const JobId job = cluster.Submit("rn50", {.max_restarts = 100});
  EXPECT_EQ(Crash(job, 57, sick), "a");
  EXPECT_TRUE(cluster.Node("a").set_aside);
  EXPECT_EQ(cluster.Job(job).failures, 0u);
  EXPECT_EQ(Crash(job, 57, sick), "b");
  EXPECT_EQ(cluster.Job(job).failures, 1u);
  EXPECT_THAT(cluster.Decisions(),
              Contains(HasSubstr("node a may be used again: job 1 (rn50), for which it "
                                 "was set aside, says in its log that other nodes are broken too")));
  Crash(job, 57, sick);
  Crash(job, 57, sick);
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kSamePlace);
  for (const auto* node : {"a", "b", "c", "d"}) EXPECT_FALSE(cluster.Node(node).set_aside) << node;
}

TEST_F(LogPatterns, ANodeThatTwoJobsLogsSpokeOfStaysSetAside) {
  cluster.Join("a", 2).Join("b", 2).Join("c", 2).Join("d", 2);
  const auto sick = Match(PatternAction::kExcludeNode);
  const JobId first = cluster.Submit("rn50", {.max_restarts = 100});
  const JobId second = cluster.Submit("other");
  BringUp(second);
  EXPECT_EQ(NodeOf(second), "a");
  EXPECT_EQ(Crash(first, 57, sick), "a");
  RankExit exit = ExitCode(0, 1, "it ends");
  exit.match = sick;
  cluster.Ends("a", second, {exit});
  cluster.Pass(seconds(5));  // what its rank says of it may come late
  EXPECT_EQ(Crash(first, 57, sick), "b");
  EXPECT_EQ(cluster.Job(first).failures, 1u);
  EXPECT_TRUE(cluster.Node("a").set_aside);
}

TEST_F(LogPatterns, ANodeThatALineToldOfIsUsedAgainThoughAnotherJobFailedThere) {
  cluster.Join("a", 2).Join("b", 2).Join("c", 2).Join("d", 2);
  const auto sick = Match(PatternAction::kExcludeNode);
  const JobId first = cluster.Submit("rn50", {.max_restarts = 100});
  const JobId second = cluster.Submit("other");
  BringUp(second);
  ASSERT_EQ(NodeOf(second), "a");
  ASSERT_EQ(Crash(first, 57, sick), "a");
  cluster.Ends("a", second, {ExitCode(0, 1, "it ends")});
  cluster.Pass(seconds(5));  // what its rank says of it may come late
  ASSERT_EQ(Crash(first, 57, sick), "b");
  EXPECT_FALSE(cluster.Node("a").set_aside) << "nobody's log speaks of it any more";
  EXPECT_THAT(cluster.Node("a").strikes, ElementsAre(Strike{second, "other"}));
}

TEST_F(LogPatterns, ANodeWhereJobsFailedStaysSetAsideForThemOnceALineIsDoubted) {
  cluster.Join("a", 2).Join("b", 2).Join("c", 2).Join("d", 2);
  const auto sick = Match(PatternAction::kExcludeNode);
  const JobId goes_on = cluster.Submit("goes-on", {.max_restarts = 100});
  BringUp(goes_on);
  ASSERT_EQ(NodeOf(goes_on), "a");
  std::vector<JobId> buggy;
  for (const char* name : {"one", "two", "three"}) {
    buggy.push_back(cluster.Submit(name));
    ASSERT_EQ(Crash(buggy.back(), 57), "a");
    ASSERT_TRUE(cluster.Pause(buggy.back()));
  }
  RankExit exit = ExitCode(0, 1, "it ends");
  exit.match = sick;
  cluster.Ends("a", goes_on, {exit});
  cluster.Pass(seconds(5));  // what its rank says of it may come late
  ASSERT_EQ(cluster.Node("a").set_aside->by, AsideBy::kPattern);
  cluster.Decisions();
  ASSERT_NE(Crash(goes_on, 57, sick), "a");
  ASSERT_TRUE(cluster.Node("a").set_aside);
  EXPECT_EQ(cluster.Node("a").set_aside->by, AsideBy::kStrikes);
  EXPECT_THAT(cluster.Decisions(),
              Contains(HasSubstr("node a is set aside: 3 different jobs failed there in a row: 2 (one), 3 "
                                 "(two), 4 (three);")));
  ASSERT_TRUE(cluster.Resume(buggy.front()));
  EXPECT_NE(Crash(buggy.front(), 57), "a");
  EXPECT_FALSE(cluster.Node("a").set_aside);
}

TEST_F(LogPatterns, ALineThatToldOfANodeThatStayedInUseKeepsItAsideLater) {
  cluster.Join("a", 1);
  const JobId told = cluster.Submit("rn50");
  ASSERT_EQ(Crash(told, 57, Match(PatternAction::kExcludeNode)), "a");
  ASSERT_FALSE(cluster.Node("a").set_aside) << "it is the only one";
  ASSERT_TRUE(cluster.Cancel(told).has_value());
  const JobId buggy = cluster.Submit("buggy");
  ASSERT_EQ(Crash(buggy, 57), "a");
  ASSERT_TRUE(cluster.Pause(buggy));
  cluster.Join("b", 1).Join("c", 1);
  FailsOnce("three");
  ASSERT_TRUE(cluster.Node("a").set_aside);
  ASSERT_TRUE(cluster.Resume(buggy));
  EXPECT_NE(Crash(buggy, 57), "a");
  EXPECT_EQ(cluster.Node("a").strikes.size(), 2u);
  EXPECT_TRUE(cluster.Node("a").set_aside);
}

TEST_F(LogPatterns, ALineOfADeletedJobStillTellsOfItsNode) {
  cluster.Join("a", 1).Join("b", 1);
  const JobId job = cluster.Submit("rn50");
  Crash(job, 57, Match(PatternAction::kExcludeNode));
  cluster.reactor().ForgetInStrikes(job);
  EXPECT_THAT(cluster.Node("a").strikes, ElementsAre(Strike{.told = true}));
}

TEST_F(LogPatterns, ANodeWhereJobsFailedStaysSetAsideOnceALineTellsOfIt) {
  cluster.Join("a", 2).Join("b", 2).Join("c", 2).Join("d", 2);
  const JobId goes_on = cluster.Submit("goes-on");
  BringUp(goes_on);
  ASSERT_EQ(NodeOf(goes_on), "a");
  std::vector<JobId> buggy;
  for (const char* name : {"one", "two"}) {
    buggy.push_back(cluster.Submit(name));
    ASSERT_EQ(Crash(buggy.back(), 57), "a");
    ASSERT_TRUE(cluster.Pause(buggy.back()));
  }
  FailsOnce("three");
  ASSERT_TRUE(cluster.Node("a").set_aside);
  RankExit exit = ExitCode(0, 1, "it ends");
  exit.match = Match(PatternAction::kExcludeNode);
  cluster.Ends("a", goes_on, {exit});
  cluster.Pass(seconds(5));  // what its rank says of it may come late
  EXPECT_EQ(cluster.Node("a").set_aside->by, AsideBy::kPattern);
  EXPECT_THAT(cluster.Decisions(), Contains(HasSubstr("node a is set aside: job 1 (goes-on) failed there, "
                                                      "and its log says \"a line\"")));
  for (const JobId job : buggy) {
    ASSERT_TRUE(cluster.Resume(job));
    EXPECT_NE(Crash(job, 57), "a");
  }
  EXPECT_EQ(cluster.Node("a").strikes.size(), 2u) << "two of the four jobs are at fault themselves";
  EXPECT_TRUE(cluster.Node("a").set_aside);
}

TEST_F(LogPatterns, OfTheLogAndWhatTheTrainerSaidTheEarlierPatternIsBelieved) {
  for (const uint32_t of_log : {0U, 2U}) {
    cluster = TestCluster();
    cluster.Join("a", 1).Join("b", 1);
    const JobId job = cluster.Submit("rn50");
    BringUp(job);
    RankExit exit = ExitCode(0, 1, "it ends");
    exit.match = Match(PatternAction::kExcludeNode);
    exit.match->place = of_log;
    LogMatch said = Match(PatternAction::kRetry);
    said.place = 1;
    cluster.Failed(job, {.rank = 0, .message = "unhandled cuda error", .match = said});
    cluster.Ends("a", job, {exit});
    EXPECT_EQ(cluster.Node("a").set_aside.has_value(), of_log == 0);
    EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
  }
}

TEST_F(LogPatterns, ALogIsBelievedWhateverTheJobFailedOfBefore) {
  cluster.Join("a", 1).Join("b", 1).Join("c", 1).Join("d", 1);
  const JobId job = cluster.Submit("rn50");
  EXPECT_EQ(Crash(job, 57), "a");
  EXPECT_EQ(Crash(job, 57), "a");
  EXPECT_EQ(Crash(job, 58), "b");
  const std::string third = Crash(job, 59, Match(PatternAction::kExcludeNode));
  EXPECT_TRUE(cluster.Node(third).set_aside);
}

TEST_F(LogPatterns, AfterACheckpointItsLogIsBelievedAgain) {
  cluster.Join("a", 1).Join("b", 1).Join("c", 1).Join("d", 1);
  const auto sick = Match(PatternAction::kExcludeNode);
  const JobId job = cluster.Submit("rn50");
  EXPECT_EQ(Crash(job, 57, sick), "a");
  BringUp(job);
  cluster.Wrote(job, 50, cluster.Job(job).generation);
  EXPECT_EQ(Crash(job, 58, sick), "b");
  EXPECT_TRUE(cluster.Node("a").set_aside);
  EXPECT_TRUE(cluster.Node("b").set_aside);
  EXPECT_EQ(cluster.Job(job).failures, 0u);
}

TEST_F(LogPatterns, ACollectiveThatBreaksOverABrokenNodeIsTheNodesFault) {
  cluster.Join("a", 1).Join("b", 1).Join("c", 1).Join("d", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 3, .max_restarts = 0});
  cluster.BringUp(job);
  RankExit broken = ExitCode(1, 10, "ncclUnhandledCudaError: uncorrectable ECC error encountered");
  broken.match = Match(PatternAction::kExcludeNode);
  cluster.Ends("a", job, {Killed(0, 6)});
  cluster.Ends("b", job, {broken});
  cluster.Ends("c", job, {ExitCode(2, 10)});
  cluster.Pass(seconds(5));  // what they say of it may come late
  EXPECT_TRUE(cluster.Node("b").set_aside);
  EXPECT_THAT(cluster.Node("a").strikes, IsEmpty()) << "its abort is a consequence";
  EXPECT_NE(cluster.Job(job).state, JobState::kFailed) << "and no failure of the job";
}

TEST_F(LogPatterns, APatternMaySayThatARetryWouldNotHelp) {
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn50");
  Crash(job, 57, Match(PatternAction::kNoRetry));
  EXPECT_EQ(cluster.Job(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kLogPattern);
  EXPECT_THAT(cluster.Job(job).reason.text,
              HasSubstr("its log says \"a line\": it is broken (pattern p); it is not tried again"));
}

TEST_F(LogPatterns, APatternMaySayThatTheJobIsNotAtFault) {
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn50", {.max_restarts = 0});
  for (int i = 0; i < 5; ++i) Crash(job, 57, Match(PatternAction::kRetry));
  EXPECT_EQ(cluster.Job(job).state, JobState::kQueued) << "nor does the place matter";
  EXPECT_EQ(cluster.Job(job).restarts, 5u);
}

TEST_F(LogPatterns, APatternMayOnlySayWhatItMeans) {
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn50", {.max_restarts = 0});
  Crash(job, 57, Match(PatternAction::kLabel));
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kRetriesExhausted);
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("its log says \"a line\": it is broken (pattern p)"));
}

TEST_F(LogPatterns, OfRanksThatFailedAlikeTheOneThatTellsOfABrokenNodeIsBelieved) {
  cluster.Join("a", 1).Join("b", 1).Join("c", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 2});
  cluster.BringUp(job);
  RankExit broken = Killed(1, 6);
  broken.match = Match(PatternAction::kExcludeNode);
  cluster.Ends("a", job, {Killed(0, 6)});
  cluster.Ends("b", job, {broken});
  EXPECT_TRUE(cluster.Node("b").set_aside);
  EXPECT_FALSE(cluster.Node("a").set_aside);
}

TEST_F(LogPatterns, ALineOfABrokenCollectiveIsNotBelievedBeforeARankThatFailedByItself) {
  cluster.Join("a", 1).Join("b", 1);
  const JobId job = cluster.Submit("rn50", {.nodes = 2});
  cluster.BringUp(job);
  RankExit consequence = Killed(0, 6);
  consequence.match = Match(PatternAction::kRetry);
  consequence.match->collective = true;
  cluster.Ends("a", job, {consequence});
  cluster.Failed(job, {.rank = 1, .message = "label 7"});
  cluster.Ends("b", job, {ExitCode(1, 1)});
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("rank 1 on node b failed with exit code 1: label 7"));
}

}  // namespace
}  // namespace imgd
