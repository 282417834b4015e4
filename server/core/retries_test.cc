#include "server/core/testing/retries.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "server/core/explain.h"
#include "server/core/job.h"

namespace imgd {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

TEST_F(Retries, ThreeCrashesRunningInOnePlaceEndTheJobAndSaySo) {
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn50", {.max_restarts = 100});
  Crash(job, 57);
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("(failure 1 of at most 100)"));
  Crash(job, 57);
  EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
  Crash(job, 57);
  EXPECT_EQ(cluster.Job(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kSamePlace);
  EXPECT_EQ(cluster.Job(job).reason.text,
            "failed 3 times running in the same place without a checkpoint between, each time on a, so that "
            "another "
            "start would not help: rank 0 on node a failed with exit code 1 at step 57, forward pass "
            "(collective 0): "
            "label 1000 is out of range");
}

TEST_F(Retries, AnotherPlaceOrACheckpointBetweenBeginsTheCountAnew) {
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn50", {.max_restarts = 100});
  for (const uint64_t step : {57, 57, 58, 57, 57}) Crash(job, step);
  EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
  BringUp(job);
  cluster.Wrote(job, 50, cluster.Job(job).generation);
  Crash(job, 57);
  Crash(job, 57);
  EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
  Crash(job, 57);
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kSamePlace);
}

TEST_F(Retries, TheCountIsKeptOverARestartOfTheDaemonAndOverWhatIsNotTheJobsFault) {
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn50");
  Crash(job, 57);
  Crash(job, 57);
  BringUp(job);
  cluster.Failed(job, {.rank = 0, .message = "all-reduce broke", .collective_broken = true});
  cluster.Ends("a", job, {ExitCode(0, 10)});
  cluster.Restart();
  cluster.Join("a", 1);
  Crash(job, 57);
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kSamePlace);
}

TEST_F(Retries, ABrokenCollectiveCountsAgainstNobody) {
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn50", {.max_restarts = 0});
  for (uint32_t i = 1; i < kMostWithoutProgress; ++i) {
    BringUp(job);
    cluster.Failed(job, {.rank = 0, .message = "all-reduce broke", .collective_broken = true});
    cluster.Ends("a", job, {ExitCode(0, 10)});
    ASSERT_EQ(cluster.Job(job).state, JobState::kQueued) << i;
  }
  EXPECT_EQ(cluster.Job(job).failures, 0u);
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("(not counted against max_restarts)"));
  EXPECT_THAT(cluster.Node("a").strikes, IsEmpty());
  BringUp(job);
  cluster.Failed(job, {.rank = 0, .message = "all-reduce broke", .collective_broken = true});
  cluster.Ends("a", job, {ExitCode(0, 10)});
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kRetriesExhausted) << "nor does it go on for ever";
  EXPECT_THAT(cluster.Job(job).reason.text,
              HasSubstr("gave up after 20 starts running without a checkpoint"));
}

TEST_F(Retries, AJobThatCrashedTwiceOnANodeIsTriedOnAnotherThatIsFree) {
  cluster.Join("a", 1).Join("b", 1);
  const JobId job = cluster.Submit("rn50");
  EXPECT_EQ(Crash(job, 57), "a");
  EXPECT_EQ(Crash(job, 57), "a");
  EXPECT_EQ(Crash(job, 57), "b");
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kSamePlace);
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("without a checkpoint between, on a, b, so"));
}

TEST_F(Retries, JobsThatCrashTogetherAreTriedOnEachOthersNodes) {
  cluster.Join("a", 1).Join("b", 1);
  const JobId first = cluster.Submit("rn50-a");
  const JobId second = cluster.Submit("rn50-b");
  EXPECT_EQ(Crash(first, 57), "a");
  EXPECT_EQ(Crash(second, 57), "b");
  BringUp(first);
  BringUp(second);
  ASSERT_EQ(NodeOf(first), "a");
  ASSERT_EQ(NodeOf(second), "b");
  Actions actions;
  for (const JobId job : {first, second}) {
    cluster.Pulses(NodeOf(job), job, {{.rank = 0, .step = 57, .what = "forward pass"}});
    cluster.Failed(job, {.rank = 0, .message = "label 1000 is out of range"});
  }
  for (const JobId job : {first, second}) {
    const RunReport report{
        .run = cluster.RunOf(job), .phase = RunPhase::kGone, .exits = {ExitCode(0, 1, "IndexError")}};
    cluster.reactor().OnRunStatus(NodeId(NodeOf(job)), report, cluster.now(), actions);
  }
  cluster.reactor().Schedule(cluster.now(), actions);
  cluster.reactor().Commit();
  cluster.Take(std::move(actions));
  BringUp(first);
  BringUp(second);
  EXPECT_EQ(NodeOf(first), "b");
  EXPECT_EQ(NodeOf(second), "a");
}

TEST_F(Retries, APauseMeanwhileDoesNotTakeItBackThere) {
  cluster.Join("a", 1).Join("b", 1);
  const JobId job = cluster.Submit("rn50");
  Crash(job, 57);
  EXPECT_EQ(Crash(job, 57), "a");
  ASSERT_TRUE(cluster.Pause(job));
  ASSERT_TRUE(cluster.Resume(job));
  EXPECT_EQ(NodeOf(job), "b");
}

TEST_F(Retries, ItGoesBackWhereOthersTookTheNode) {
  cluster.Join("a", 1).Join("b", 1);
  const JobId job = cluster.Submit("rn50");
  Crash(job, 57);
  Crash(job, 57);
  cluster.Leave("b");
  cluster.Pass(seconds(5));
  EXPECT_EQ(cluster.Job(job).state, JobState::kStarting);
  EXPECT_EQ(NodeOf(job), "a");
}

TEST_F(Retries, WhereOthersTookItNothingIsSaidOfANodeThatItStartsOnAfterAll) {
  cluster.Join("a", 1).Join("b", 1);
  const JobId job = cluster.Submit("rn50");
  Crash(job, 57);
  Crash(job, 57);
  cluster.Leave("b");
  const JobId first = cluster.Submit("first", {.priority = 3});
  ASSERT_EQ(cluster.Job(first).state, JobState::kStarting);
  cluster.Pass(seconds(5));
  EXPECT_EQ(cluster.Job(job).state, JobState::kQueued);
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kWaitsForDevices);
  EXPECT_THAT(cluster.Job(job).reason.text, Not(HasSubstr("again")));
}

TEST_F(Retries, ADeletedJobCountsAgainstANodeButIsNotNamed) {
  cluster.Join("a", 1).Join("b", 1);
  const JobId first = FailsOnce("one");
  const JobId second = FailsOnce("two");
  cluster.reactor().ForgetInStrikes(first);
  EXPECT_THAT(cluster.Node("a").strikes, ElementsAre(Strike{}, Strike{second, "two"}));
  const JobId third = FailsOnce("three");
  ASSERT_TRUE(cluster.Node("a").set_aside);
  EXPECT_THAT(cluster.Node("a").set_aside->reason,
              HasSubstr(fmt::format("3 different jobs failed there in a row: one that was deleted, {} (two), "
                                    "{} (three)",
                                    second, third)));
}

TEST_F(Retries, ANodeWhereThreeJobsFailInARowIsSetAside) {
  cluster.Join("a", 1).Join("b", 1);
  const JobId first = FailsOnce("one");
  EXPECT_THAT(cluster.Node("a").strikes, ElementsAre(Strike{first, "one"}));
  FailsOnce("two");
  EXPECT_FALSE(cluster.Node("a").set_aside);
  cluster.Decisions();
  FailsOnce("three");
  ASSERT_TRUE(cluster.Node("a").set_aside);
  EXPECT_EQ(cluster.Node("a").set_aside->by, AsideBy::kStrikes);
  EXPECT_THAT(
      ExplainNode(cluster.Node("a")),
      HasSubstr("is set aside by imgd: 3 different jobs failed there in a row: 1 (one), 2 (two), 3 (three)"));
  EXPECT_THAT(cluster.Decisions(), Contains(AllOf(HasSubstr("node a is set aside: 3 different jobs"),
                                                  HasSubstr("imgcli node uncordon a undoes it"))));
  EXPECT_EQ(NodeOf(cluster.Submit("four")), "b");
  cluster.Restart();
  cluster.Join("a", 1).Join("b", 1);
  EXPECT_FALSE(cluster.Node("a").Usable()) << "also after a restart";
  EXPECT_TRUE(cluster.Return("a", false).has_value());
  EXPECT_TRUE(cluster.Node("a").Usable());
  EXPECT_THAT(cluster.Node("a").strikes, IsEmpty());
}

TEST_F(Retries, ANodeThatHoldsNoPortForTheRendezvousIsSetAsideToo) {
  for (const bool answers : {true, false}) {
    cluster = TestCluster();
    cluster.Join("a", 1).Join("b", 1);
    for (const char* name : {"one", "two", "three"}) {
      const JobId job = cluster.Submit(name);
      ASSERT_EQ(NodeOf(job), "a");
      if (answers) {
        cluster.Prepared("a", job, "no free port");
      } else {
        cluster.Pass(seconds(30));
      }
      cluster.Ends("a", job, {});
      EXPECT_THAT(cluster.Job(job).reason.text,
                  HasSubstr(answers ? "node a has no port for the rendezvous: no free port"
                                    : "node a named no port for the rendezvous within 30 s"));
      EXPECT_TRUE(cluster.Cancel(job).has_value());
    }
    EXPECT_TRUE(cluster.Node("a").set_aside);
  }
}

TEST_F(Retries, WhereNothingOfItRanIsNotAmongTheNodesThatItCrashedOn) {
  cluster.Join("a", 1).Join("b", 1).Join("c", 1);
  const JobId job = cluster.Submit("rn50");
  ASSERT_EQ(NodeOf(job), "a");
  cluster.Prepared("a", job, "no free port");
  cluster.Ends("a", job, {});
  ASSERT_TRUE(cluster.SetAside("a", false).has_value());
  EXPECT_EQ(Crash(job, 57), "b");
  EXPECT_THAT(cluster.Node("a").strikes, SizeIs(1));
  EXPECT_THAT(cluster.Node("b").strikes, SizeIs(1)) << "it has crashed on no other";
  EXPECT_EQ(Crash(job, 57), "b");
  EXPECT_EQ(Crash(job, 57), "c") << "twice in one place, on one node: tried on another";
}

TEST_F(Retries, ANodeThatHoldsNoPortIsStruckAlsoByAJobThatIsAtFaultItself) {
  cluster.Join("a", 1).Join("b", 1).Join("c", 1);
  const JobId job = cluster.Submit("buggy", {.max_restarts = 100});
  EXPECT_EQ(Crash(job, 57), "a");
  EXPECT_EQ(Crash(job, 57), "a");
  EXPECT_EQ(Crash(job, 58), "b");
  ASSERT_TRUE(cluster.SetAside("a", false).has_value());
  ASSERT_TRUE(cluster.SetAside("b", false).has_value());
  for (int i = 0; i < 70 && cluster.Job(job).state == JobState::kQueued; ++i) cluster.Pass(seconds(1));
  ASSERT_EQ(NodeOf(job), "c");
  cluster.Prepared("c", job, "no free port");
  cluster.Ends("c", job, {});
  EXPECT_THAT(cluster.Node("c").strikes, SizeIs(1));
  EXPECT_THAT(cluster.Node("b").strikes, IsEmpty());
}

TEST_F(Retries, TheSameJobOverAndOverIsOneStrikeAndASuccessTakesAllAway) {
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn50");
  for (const uint64_t step : {1, 2, 3, 4}) Crash(job, step);
  EXPECT_EQ(cluster.Node("a").strikes.size(), 1u);
  BringUp(job);
  cluster.Complete(job);
  EXPECT_THAT(cluster.Node("a").strikes, IsEmpty());
}

TEST_F(Retries, WhatIsTheJobsOwnFaultIsNoStrike) {
  cluster.Join("a", 1);
  const JobId bad = cluster.Submit("bad-input");
  BringUp(bad);
  cluster.Ends("a", bad, {ExitCode(0, 2, "no such folder")});
  Crash(cluster.Submit("told"), 5, Match(PatternAction::kNoRetry));
  const JobId stopped = cluster.Submit("stopped");
  BringUp(stopped);
  cluster.Ends("a", stopped, {Killed(0, 15)});
  EXPECT_THAT(cluster.Node("a").strikes, IsEmpty());
}

TEST_F(Retries, AJobThatFailsOnSeveralNodesTakesItsStrikesBackAndTheNodeWithThem) {
  cluster.Join("a", 1).Join("b", 1).Join("c", 1).Join("d", 1);
  FailsOnce("one");
  FailsOnce("two");
  const JobId job = cluster.Submit("buggy");
  Crash(job, 57);
  ASSERT_TRUE(cluster.Node("a").set_aside);
  cluster.Decisions();
  EXPECT_EQ(Crash(job, 57), "b");
  EXPECT_FALSE(cluster.Node("a").set_aside) << "it fails everywhere";
  EXPECT_EQ(cluster.Node("a").strikes.size(), 2u);
  EXPECT_THAT(cluster.Node("b").strikes, IsEmpty());
  EXPECT_THAT(cluster.Decisions(), Contains(HasSubstr("node a may be used again: job 3 (buggy)")));
}

TEST_F(Retries, AFaultOfAllJobsDoesNotEmptyTheCluster) {
  cluster.Join("a", 1).Join("b", 1).Join("c", 1);
  // Jobs that crash wherever they are; each is on a node of its own.
  std::vector<JobId> jobs;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 3; ++i) {
      const JobId job = cluster.Submit("sweep");
      BringUp(job);
      jobs.push_back(job);
    }
    for (int i = 0; i < 3; ++i) {
      const JobId job = jobs[jobs.size() - 3 + static_cast<size_t>(i)];
      cluster.Failed(job, {.rank = 0, .message = "bug"});
      cluster.Ends(NodeOf(job), job, {ExitCode(0, 1, "bug")});
      EXPECT_TRUE(cluster.Cancel(job).has_value());
    }
  }
  for (const char* node : {"a", "b", "c"}) {
    EXPECT_FALSE(cluster.Node(node).set_aside) << node;
    EXPECT_EQ(cluster.Node(node).strikes.size(), 4u) << node;
  }
  EXPECT_THAT(cluster.Decisions(), Contains(HasSubstr("stays in use, for jobs fail on")));
}

TEST_F(Retries, NeverMoreThanHalfOfTheNodesAreSetAside) {
  cluster.Join("a", 1);
  for (const char* name : {"one", "two", "three"}) FailsOnce(name);
  EXPECT_FALSE(cluster.Node("a").set_aside) << "it is the only one";
  EXPECT_THAT(cluster.Decisions(),
              Contains(HasSubstr("node a stays in use, for that would be more than half")));
}

TEST_F(Retries, ThatANodeStaysInUseIsSaidOnceUntilItsStrikesAreForgotten) {
  cluster.Join("a", 1);
  const auto times_said = [this] {
    const auto decisions = cluster.Decisions();
    return std::count_if(decisions.begin(), decisions.end(), [](const std::string& text) {
      return text.find("node a stays in use") != std::string::npos;
    });
  };
  for (int i = 0; i < 6; ++i) FailsOnce("typo");
  EXPECT_EQ(times_said(), 1);
  const JobId good = cluster.Submit("good");
  BringUp(good);
  cluster.Complete(good);
  for (int i = 0; i < 6; ++i) FailsOnce("typo");
  EXPECT_EQ(times_said(), 1);
  for (int i = 0; i < 2; ++i) {
    const JobId sick = cluster.SubmitSweep("sick", 3, 1);
    for (uint64_t member = 0; member < 3; ++member) {
      Crash(JobId(sick.value() + member), 5, Match(PatternAction::kExcludeNode));
      EXPECT_TRUE(cluster.Cancel(JobId(sick.value() + member)).has_value());
    }
    EXPECT_EQ(times_said(), 1) << "of what a line in the log says, for each sweep";
  }
}

TEST_F(Retries, JobsOfOneSweepCountAsOne) {
  cluster.Join("a", 1).Join("b", 1);
  const JobId sweep = cluster.SubmitSweep("lr", 4, 1);
  for (uint64_t i = 0; i < 4; ++i) {
    Crash(JobId(sweep.value() + i), 5);
    EXPECT_TRUE(cluster.Cancel(JobId(sweep.value() + i)).has_value());
  }
  EXPECT_THAT(cluster.Node("a").strikes, ElementsAre(Strike{sweep, "lr[1]"}));
  FailsOnce("two");
  EXPECT_FALSE(cluster.Node("a").set_aside);
  FailsOnce("three");
  EXPECT_TRUE(cluster.Node("a").set_aside) << "what was submitted by itself counts by itself";
}

TEST_F(Retries, AJobThatFailsOnSeveralNodesTakesItsSweepsStrikesBack) {
  cluster.Join("a", 1).Join("b", 1).Join("c", 1).Join("d", 1);
  const JobId sweep = cluster.SubmitSweep("lr", 2, 1);
  Crash(sweep, 57);
  EXPECT_TRUE(cluster.Cancel(sweep).has_value());
  EXPECT_EQ(cluster.Node("a").strikes.size(), 1u);
  const JobId second(sweep.value() + 1);
  Crash(second, 57);
  Crash(second, 57);
  EXPECT_EQ(Crash(second, 57), "b");
  EXPECT_THAT(cluster.Node("a").strikes, IsEmpty());
}

TEST_F(Retries, SettingNoneAsideIsASetting) {
  cluster = TestCluster({.set_aside_after = 0});
  cluster.Join("a", 1).Join("b", 1);
  for (const char* name : {"one", "two", "three", "four"}) FailsOnce(name);
  EXPECT_FALSE(cluster.Node("a").set_aside);
}

TEST_F(Retries, ANodeThatIsSetAsideIsUsedAgainThoughNoneIsSetAsideAnyMore) {
  cluster.Join("a", 1).Join("b", 1).Join("c", 1).Join("d", 1);
  FailsOnce("one");
  FailsOnce("two");
  const JobId job = cluster.Submit("buggy");
  Crash(job, 57);
  ASSERT_TRUE(cluster.Node("a").set_aside);
  cluster.reactor().SetSettings({.set_aside_after = 0});
  EXPECT_EQ(Crash(job, 58), "b");
  EXPECT_FALSE(cluster.Node("a").set_aside);
}

TEST_F(Retries, ACommitThatFailsLosesNothingOfWhereItCrashed) {
  cluster.Join("a", 1);
  const JobId job = cluster.Submit("rn50");
  BringUp(job);
  cluster.Pulses("a", job, {{.rank = 0, .step = 57, .what = "forward pass"}});
  cluster.Failed(job, {.rank = 0, .message = "label 1000 is out of range"});
  const RunReport gone{
      .run = cluster.RunOf(job), .phase = RunPhase::kGone, .exits = {ExitCode(0, 1, "IndexError")}};
  cluster.FailCommit(
      [&](Actions& out) { cluster.reactor().OnRunStatus(NodeId("a"), gone, cluster.now(), out); });
  ASSERT_EQ(cluster.Job(job).state, JobState::kRunning);
  cluster.Join("a", 1, {gone});
  EXPECT_THAT(cluster.Job(job).reason.text, HasSubstr("at step 57, forward pass"));
}

TEST_F(Retries, ItMayTakeMoreJobsToSetANodeAsideThanAreRememberedElse) {
  cluster = TestCluster({.set_aside_after = 20});
  cluster.Join("a", 1).Join("b", 1);
  for (int i = 0; i < 19; ++i) FailsOnce("one");
  EXPECT_FALSE(cluster.Node("a").set_aside);
  FailsOnce("one");
  EXPECT_TRUE(cluster.Node("a").set_aside);
}

TEST_F(Retries, SomebodyMayTakeOverWhatImgdSetAside) {
  cluster.Join("a", 1).Join("b", 1);
  Crash(cluster.Submit("rn50"), 57, Match(PatternAction::kExcludeNode));
  ASSERT_TRUE(cluster.SetAside("a", false, "I look after it").has_value());
  EXPECT_THAT(ExplainNode(cluster.Node("a")), HasSubstr("is cordoned by ada: I look after it"));
  EXPECT_TRUE(cluster.Return("a", false).has_value());
}

}  // namespace
}  // namespace imgd
