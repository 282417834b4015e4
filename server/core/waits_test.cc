#include "server/core/waits.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>

#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(After, WhatFulfilsIt) {
  using enum JobState;
  struct Row {
    AfterEnd when;
    std::vector<JobState> by;
  };
  for (const auto& [when, by] : std::vector<Row>{{AfterEnd::kOk, {kCompleted}},
                                                 {AfterEnd::kAny, {kCompleted, kFailed, kCancelled}},
                                                 {AfterEnd::kFailed, {kFailed}}}) {
    for (const JobState state :
         {kQueued, kStarting, kRunning, kPreempting, kPaused, kCompleted, kFailed, kCancelled}) {
      const bool wanted = std::find(by.begin(), by.end(), state) != by.end();
      EXPECT_EQ(Fulfils(when, state), wanted) << NameOf(state);
    }
  }
}

TEST(UtcText, AlsoBeyondWhatNanosecondsCount) {
  EXPECT_EQ(UtcText({0}), "1970-01-01 00:00:00 UTC");
  EXPECT_EQ(UtcText({16'756'761'599'000'000}), "2500-12-31 23:59:59 UTC");
}

struct Waits : testing::Test {
  Waits() {
    cluster.Join("a", 2);
    pre = cluster.Submit("pre", {.max_restarts = 0});
    cluster.BringUp(pre);
  }
  JobId SubmitAfter(const std::string& name, std::vector<Dependency> after) {
    return cluster.Submit(name, {.after = std::move(after)});
  }
  void FailPre() { cluster.Ends("a", pre, {Killed(0, 9)}); }
  JobState StateOf(JobId job) const { return cluster.Job(job).state; }
  Status MaySubmit(Dependency after) {
    return cluster.reactor().MaySubmit({.name = "x", .owner = "ada", .after = {std::move(after)}});
  }
  TestCluster cluster;
  JobId pre;
};

TEST_F(Waits, AJobWaitsOutsideTheQueueUntilTheOtherHasCompleted) {
  const JobId job = SubmitAfter("main", {cluster.After(pre)});
  EXPECT_EQ(StateOf(job), JobState::kQueued);
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kAfterJob);
  EXPECT_EQ(cluster.Job(job).reason.text, "waits for job 1 (pre) to complete");
  EXPECT_THAT(cluster.reactor().state().queue(), IsEmpty());
  const JobId other = cluster.Submit("other");
  EXPECT_EQ(StateOf(other), JobState::kStarting) << "it holds up nobody";
  cluster.Complete(pre);
  EXPECT_EQ(StateOf(job), JobState::kStarting);
}

TEST_F(Waits, HowItHasToEnd) {
  const JobId ok = SubmitAfter("ok", {cluster.After(pre)});
  const JobId any = SubmitAfter("any", {cluster.After(pre, AfterEnd::kAny)});
  const JobId failed = SubmitAfter("failed", {cluster.After(pre, AfterEnd::kFailed)});
  const JobId next = SubmitAfter("next", {cluster.After(ok)});
  FailPre();
  EXPECT_EQ(StateOf(ok), JobState::kFailed);
  EXPECT_EQ(cluster.Job(ok).reason.code, ReasonCode::kAfterNever);
  EXPECT_EQ(cluster.Job(ok).reason.text,
            "job 1 (pre) ended as FAILED, and this one was to start only if it completed");
  EXPECT_EQ(StateOf(any), JobState::kStarting);
  EXPECT_EQ(StateOf(failed), JobState::kStarting);
  EXPECT_EQ(StateOf(next), JobState::kFailed) << "what comes after it does not wait for ever either";
  EXPECT_THAT(cluster.Job(next).reason.text, HasSubstr("job 2 (ok) ended as FAILED"));
}

TEST_F(Waits, ACancelledJobHasNeitherCompletedNorFailed) {
  const JobId ok = SubmitAfter("ok", {cluster.After(pre)});
  const JobId failed = SubmitAfter("failed", {cluster.After(pre, AfterEnd::kFailed)});
  EXPECT_TRUE(cluster.Cancel(pre));
  cluster.Ends("a", pre, {Killed(0, 15)});
  EXPECT_EQ(StateOf(ok), JobState::kFailed);
  EXPECT_EQ(cluster.Job(failed).reason.text,
            "job 1 (pre) ended as CANCELLED, and this one was to start only if it failed");
}

TEST_F(Waits, AllOfThemHaveToEndAndTheReasonSaysWhichAreLeft) {
  const JobId second = cluster.Submit("second");
  const JobId job = SubmitAfter("main", {cluster.After(pre), cluster.After(second, AfterEnd::kAny)});
  EXPECT_EQ(cluster.Job(job).reason.text, "waits for job 1 (pre) to complete, job 2 (second) to end");
  cluster.Complete(pre);
  EXPECT_EQ(cluster.Job(job).reason.text, "waits for job 2 (second) to end");
  EXPECT_TRUE(cluster.Cancel(second));
  cluster.Ends("a", second, {Killed(0, 15)});
  EXPECT_EQ(StateOf(job), JobState::kStarting);
}

TEST_F(Waits, OfManyTheReasonNamesThree) {
  std::vector<Dependency> after;
  for (int i = 0; i < 5; ++i) after.push_back(cluster.After(cluster.Submit("other"), AfterEnd::kAny));
  const JobId job = SubmitAfter("main", after);
  EXPECT_EQ(cluster.Job(job).reason.text,
            "waits for job 2 (other) to end, job 3 (other) to end, job 4 (other) to end and 2 more");
  EXPECT_TRUE(cluster.Cancel(JobId(4)));
  EXPECT_EQ(cluster.Job(job).reason.text,
            "waits for job 2 (other) to end, job 3 (other) to end, job 5 (other) to end and 1 more");
}

TEST_F(Waits, TheJobsOfASweepHaveSoManyWaitsTogether) {
  const Submission job{
      .name = "x", .owner = "ada", .after = std::vector<Dependency>(100, cluster.After(pre))};
  const auto error_of = [&](size_t members) {
    const auto may = cluster.reactor().MaySubmit(job, std::vector<Submission>(members, job));
    return may ? "" : may.error().message;
  };
  EXPECT_EQ(error_of(1000), "");
  EXPECT_EQ(error_of(1001),
            "after: each of the sweep's 1001 jobs would wait for 100 others, which is more than 100000 waits "
            "in all");
}

TEST_F(Waits, ARetryOrAPauseOfTheOtherIsNoEnd) {
  const JobId other = cluster.Submit("other");
  cluster.BringUp(other);
  const JobId job = SubmitAfter("main", {cluster.After(other, AfterEnd::kAny)});
  cluster.Ends("a", other, {Killed(0, 9)});
  EXPECT_TRUE(cluster.Pause(other));
  EXPECT_EQ(StateOf(other), JobState::kPaused);
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kAfterJob);
  EXPECT_TRUE(cluster.Cancel(other));
  EXPECT_EQ(StateOf(job), JobState::kStarting);
}

TEST_F(Waits, APausedOneLearnsOfTheEndWhenItIsResumed) {
  const JobId good = SubmitAfter("good", {cluster.After(pre, AfterEnd::kFailed)});
  const JobId bad = SubmitAfter("bad", {cluster.After(pre)});
  EXPECT_TRUE(cluster.Pause(good));
  EXPECT_TRUE(cluster.Pause(bad));
  FailPre();
  EXPECT_EQ(StateOf(good), JobState::kPaused);
  EXPECT_EQ(StateOf(bad), JobState::kPaused);
  EXPECT_TRUE(cluster.Resume(good));
  EXPECT_TRUE(cluster.Resume(bad));
  EXPECT_EQ(StateOf(good), JobState::kStarting);
  EXPECT_EQ(StateOf(bad), JobState::kFailed);
}

TEST_F(Waits, ThatARunByHandFellSilentIsItsEndHoweverItGoesOn) {
  const JobId silent = cluster.StartedByHand("silent", {"gpu-3"});
  const JobId job = SubmitAfter("main", {cluster.After(silent, AfterEnd::kFailed), cluster.After(pre)});
  cluster.Pass(std::chrono::minutes(6));
  EXPECT_EQ(cluster.Job(job).reason.text, "waits for job 1 (pre) to complete");
  cluster.HeardByHand(silent);
  cluster.Finished(silent);
  EXPECT_EQ(StateOf(silent), JobState::kCompleted);
  cluster.Complete(pre);
  EXPECT_EQ(StateOf(job), JobState::kStarting);
}

TEST_F(Waits, OverARestartItStillWaits) {
  const JobId job = SubmitAfter("main", {cluster.After(pre)});
  cluster.Restart();
  cluster.Join("a", 2, {{.run = cluster.RunOf(pre), .phase = RunPhase::kRunning}});
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kAfterJob);
  cluster.Complete(pre);
  EXPECT_EQ(StateOf(job), JobState::kStarting);
}

TEST_F(Waits, AnEndThatWasNotStoredDidNotHappen) {
  const JobId job = SubmitAfter("main", {cluster.After(pre)});
  cluster.FailCommit([&](Actions& out) {
    EXPECT_TRUE(cluster.reactor().OnCancel(pre, false, "ada", cluster.now(), out));
    cluster.reactor().OnRunStatus(
        NodeId("a"), {.run = cluster.RunOf(pre), .phase = RunPhase::kGone, .exits = {Killed(0, 15)}},
        cluster.now(), out);
    EXPECT_EQ(StateOf(pre), JobState::kCancelled);
  });
  cluster.Join("a", 2, {{.run = cluster.RunOf(pre), .phase = RunPhase::kRunning}});
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kAfterJob);
  cluster.Complete(pre);
  EXPECT_EQ(StateOf(job), JobState::kStarting);
}

TEST_F(Waits, OneThatHasEndedAlreadyIsNoWaitOrNoSubmission) {
  FailPre();
  EXPECT_EQ(StateOf(SubmitAfter("main", {cluster.After(pre, AfterEnd::kAny)})), JobState::kStarting);
  const auto refused = MaySubmit(cluster.After(pre));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(refused.error().message,
            "after: job 1 (pre) has ended as FAILED already, and this one is to start only if it completes");
  EXPECT_TRUE(MaySubmit(cluster.After(pre, AfterEnd::kFailed)));
  EXPECT_EQ(MaySubmit({.job = JobId(99)}).error().code, ErrorCode::kNotFound);
}

TEST_F(Waits, ThoseWhoWaitCountAgainstTheQuotaOfJobs) {
  TestCluster bounded(CoreSettings{.quotas = {.user = {.queued = 2}}});
  const JobId first = bounded.Submit("first");
  bounded.Submit("second", {.after = {bounded.After(first)}});
  EXPECT_EQ(bounded.reactor().MaySubmit({.name = "x", .owner = "ada"}).error().code,
            ErrorCode::kFailedPrecondition);
}

TEST_F(Waits, TheMembersOfASweepCountAgainstTheQuotasOfTheirOwnProjects) {
  TestCluster bounded(
      CoreSettings{.quotas = {.user = {.queued = 4}, .projects = {{"vision", {.queued = 2}}}}});
  const auto error_of = [&bounded](size_t others, size_t vision) {
    std::vector<Submission> members(others, {.owner = "bob"});
    members.resize(others + vision, {.owner = "bob", .project = "vision"});
    const auto may = bounded.reactor().MaySubmit({.name = "x", .owner = "bob"}, members);
    return may ? "" : may.error().message;
  };
  const std::vector<Submission> many(5, {.owner = "bob"});
  EXPECT_EQ(bounded.reactor().MaySubmit({.name = "x", .owner = "bob"}, many).error().hint,
            "make the sweep smaller, or ask the operator (quotas in imgd.yaml)");
  EXPECT_EQ(error_of(2, 2), "");
  EXPECT_EQ(error_of(3, 2), "user bob has 0 jobs waiting and the quota allows 4; the sweep has 5");
  EXPECT_EQ(error_of(1, 3),
            "project vision has 0 jobs waiting and the quota allows 2; the sweep has 3 of it");
  EXPECT_EQ(error_of(0, 3), "project vision has 0 jobs waiting and the quota allows 2; the sweep has 3");
}

TEST_F(Waits, NotBeforeItsTime) {
  const WallTime later{cluster.now().wall.micros + 60'000'000};
  const JobId job = cluster.Submit("night", {.not_before = later});
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kNotBefore);
  EXPECT_EQ(cluster.Job(job).reason.text, "is not to start before 2001-09-09 01:47:40 UTC");
  cluster.Pass(seconds(30));
  cluster.Restart();
  cluster.Join("a", 2, {{.run = cluster.RunOf(pre), .phase = RunPhase::kRunning}});
  cluster.Pass(seconds(29));
  EXPECT_EQ(StateOf(job), JobState::kQueued);
  cluster.Pass(seconds(1));
  EXPECT_EQ(StateOf(job), JobState::kStarting);
  EXPECT_EQ(StateOf(cluster.Submit("past", {.not_before = WallTime{1}})), JobState::kQueued)
      << "no device is free";
}

TEST_F(Waits, TheTimeCountsAfterTheJobs) {
  const WallTime later{cluster.now().wall.micros + 60'000'000};
  const JobId job = cluster.Submit("night", {.after = {cluster.After(pre)}, .not_before = later});
  EXPECT_THAT(cluster.Job(job).reason.text,
              testing::AllOf(testing::StartsWith("waits for job 1 (pre) to complete"),
                             testing::EndsWith(", and is not to start before 2001-09-09 01:47:40 UTC")));
  cluster.Pass(seconds(90));
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kAfterJob);
  cluster.Complete(pre);
  cluster.Pass(seconds(1));
  EXPECT_EQ(StateOf(job), JobState::kStarting);
}

TEST_F(Waits, ThousandsWhoWaitAreNotInThePlan) {
  for (int i = 0; i < 5000; ++i) SubmitAfter("main", {cluster.After(pre)});
  EXPECT_THAT(cluster.reactor().state().queue(), IsEmpty());
  cluster.Complete(pre);
  EXPECT_EQ(cluster.reactor().state().queue().size(), 4998u);
}

/// How many jobs' rows a pass of the scheduler would write after what `batch` does; it is undone again.
size_t Written(TestCluster& cluster, const std::function<void(Actions&)>& batch) {
  Actions actions;
  batch(actions);
  cluster.reactor().SetSettings({});  // so that there is a pass even where nothing has changed
  cluster.reactor().Schedule(cluster.now(), actions);
  const ClusterState& state = cluster.reactor().state();
  const auto touched = state.TouchedJobs();
  const auto written = std::count_if(touched.begin(), touched.end(), [&state](JobId id) {
    return state.ChangeOf(id) != ClusterState::Change::kNothing;
  });
  cluster.reactor().Rollback();
  return static_cast<size_t>(written);
}

TEST(ManyWait, APassWritesOnlyTheReasonsThatAreOthers) {
  TestCluster cluster;
  cluster.Join("a", 1);
  const JobId runs = cluster.Submit("runs");
  cluster.BringUp(runs);
  for (int i = 0; i < 300; ++i) cluster.Submit("waits");
  Reactor& reactor = cluster.reactor();
  EXPECT_EQ(Written(cluster, [](Actions&) {}), 0u);
  EXPECT_EQ(Written(cluster, [&](Actions& out) { reactor.OnTick(cluster.now(), out); }), 0u);
  const auto come = [&](Actions& out) {
    (void)reactor.OnSubmit({.name = "comes", .owner = "ada"}, cluster.now(), out);
  };
  EXPECT_EQ(Written(cluster, come), 1u);
  const auto end = [&](Actions& out) { (void)reactor.OnCancel(runs, false, "ada", cluster.now(), out); };
  EXPECT_EQ(Written(cluster, end), 1u) << "its device is not free yet";
  const auto join = [&](Actions& out) {
    const NodeHello hello{.node = NodeId("b"),
                          .agent_id = "agent-b",
                          .address = "b",
                          .filesystem_id = "fs",
                          .devices = {{.index = 0, .model = "cpu"}}};
    EXPECT_TRUE(reactor.OnAgentHello(hello, 99, cluster.now(), out).has_value());
  };
  EXPECT_EQ(Written(cluster, join), 1u) << "who starts on it";
}

}  // namespace
}  // namespace imgd
