#include <gmock/gmock.h>

#include "server/core/explain.h"
#include "server/core/job.h"
#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

int64_t MillisecondsOf(Duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

/// Nodes a and b with a device each, and a job on a that trains and has a checkpoint of step 70.
struct NoticeCluster {
  NoticeCluster() {
    cluster.Join("a", 1).Join("b", 1);
    job = cluster.Submit("rn50");
    cluster.BringUp(job);
    cluster.Wrote(job, 70, Generation(1));
    cluster.Sent("a");
    cluster.Decisions();
  }
  /// The agent hears that its machine goes in so long, or that it stays.
  void Hears(const std::string& node, std::optional<Duration> in) {
    Health health;
    if (in) health.notice = NoticeIn(*in);
    Actions actions;
    cluster.reactor().OnHealth(NodeId(node), health, cluster.now(), actions);
    grace_ms = GraceOf(actions).value_or(grace_ms);
    cluster.Take(std::move(actions));
  }
  Notice NoticeIn(Duration time) {
    return {{cluster.now().wall.micros + MillisecondsOf(time) * 1000}, "terminate"};
  }
  static std::optional<int64_t> GraceOf(const Actions& actions) {
    for (const auto& action : actions) {
      if (const auto* stop = std::get_if<SendStop>(&action)) return stop->grace_ms;
    }
    return std::nullopt;
  }
  Status Joins(const std::string& node, Health health, std::vector<RunReport> runs = {}) {
    Actions actions;
    auto status = cluster.reactor().OnAgentHello({.node = NodeId(node),
                                                  .agent_id = "agent-of-" + node,
                                                  .filesystem_id = "fs",
                                                  .devices = {{.index = 0, .model = "cpu"}},
                                                  .runs = std::move(runs),
                                                  .health = std::move(health)},
                                                 ++session, cluster.now(), actions);
    grace_ms = GraceOf(actions).value_or(grace_ms);
    cluster.Take(std::move(actions));
    return status;
  }
  void SavesAndEnds(const std::string& node, uint64_t step) {
    cluster.Wrote(job, step, cluster.Job(job).generation);
    cluster.Ends(node, job, {ExitCode(0, 11)});
  }
  std::vector<std::string> NodesOf(JobId of) {
    std::vector<std::string> names;
    for (const auto& part : cluster.Job(of).run.parts) names.push_back(part.node.name());
    return names;
  }
  TestCluster cluster;
  JobId job;
  int64_t grace_ms = 0;  ///< of the latest command to stop
  uint64_t session = 1000;
};

struct Notices : testing::Test, NoticeCluster {};

TEST_F(Notices, WhatRunsThereSavesACheckpointAndGoesOnElsewhere) {
  Hears("a", seconds(120));
  EXPECT_THAT(
      cluster.Decisions(),
      ElementsAre("node a is being taken back by the cloud, at 01:48:40 UTC (terminate); nothing new is "
                  "placed there, and what runs there goes elsewhere"));
  EXPECT_EQ(cluster.Job(job).state, JobState::kPreempting);
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("checkpoint-stop 1/1"));
  SavesAndEnds("a", 75);
  EXPECT_EQ(cluster.Job(job).reason.code, ReasonCode::kBackoff);
  cluster.Pass(seconds(1));
  EXPECT_THAT(cluster.History(job),
              ElementsAre("QUEUED", "STARTING", "RUNNING", "PREEMPTING", "QUEUED", "STARTING"));
  EXPECT_THAT(NodesOf(job), ElementsAre("b"));
  cluster.BringUp(job);
  EXPECT_EQ(cluster.LastStart("b").resume_from.front(), "/ckpt/g1/step75");
}

TEST_F(Notices, ItIsNoFailureWhateverTheRanksDiedOf) {
  const struct {
    const char* what;
    RankExit exit;
  } cases[] = {
      {"they ended without a word of their checkpoint", ExitCode(0, 11)},
      {"they were too slow", Killed(0, 9)},
      {"they crashed", ExitCode(0, 1)},
  };
  for (const auto& c : cases) {
    NoticeCluster again;
    again.Hears("a", seconds(120));
    again.cluster.Ends("a", again.job, {c.exit});
    again.cluster.Pass(seconds(3));
    const JobRecord& record = again.cluster.Job(again.job);
    EXPECT_EQ(record.state, JobState::kStarting) << c.what;
    EXPECT_EQ(record.failures + record.restarts, 0U) << c.what;
    EXPECT_EQ(record.not_before, Instant{}) << c.what;
    EXPECT_TRUE(again.cluster.Node("a").strikes.empty()) << c.what;
  }
}

TEST_F(Notices, TheReasonAndTheActorAreTold) {
  Hears("a", seconds(120));
  EXPECT_EQ(cluster.Job(job).reason, (Reason{ReasonCode::kSpotNotice,
                                             "node a is being taken back by the cloud, at 01:48:40 UTC "
                                             "(terminate); a checkpoint is written first"}));
  cluster.Wrote(job, 75, Generation(1));
  Actions actions;
  cluster.reactor().OnRunStatus(
      NodeId("a"), {.run = cluster.RunOf(job), .phase = RunPhase::kGone, .exits = {ExitCode(0, 11)}},
      cluster.now(), actions);
  const auto event = std::find_if(actions.begin(), actions.end(),
                                  [](const Action& a) { return std::holds_alternative<AppendEvent>(a); });
  ASSERT_NE(event, actions.end());
  EXPECT_EQ(std::get<AppendEvent>(*event).to, JobState::kQueued);
  EXPECT_EQ(std::get<AppendEvent>(*event).actor, "scheduler");
  EXPECT_EQ(std::get<AppendEvent>(*event).reason,
            (Reason{ReasonCode::kSpotNotice,
                    "node a is being taken back by the cloud, at 01:48:40 UTC "
                    "(terminate); it goes on from the checkpoint of step 75"}));
}

TEST(NoticesGrace, TheTimeThatIsLeftBoundsTheCheckpoint) {
  const struct {
    Duration left;
    int64_t grace_ms;
    int64_t within_ms;
  } cases[] = {
      {seconds(120), 60'000, 57'500},  // as long again to end, and 5 s for what the agent reports
      {seconds(120), 10'000, 10'000}, {seconds(600), 60'000, 60'000},
      {seconds(30), 60'000, 12'500},  {seconds(6), 60'000, 1'000},  // better than nothing
      {seconds(1), 60'000, 1'000},    {seconds(1), 500, 500},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(GraceWithin(c.grace_ms, c.left), c.within_ms) << MillisecondsOf(c.left) << " " << c.grace_ms;
  }
}

TEST_F(Notices, ACheckpointHasAMinuteWhereThereIsTime) {
  const struct {
    const char* what;
    Duration left;
    int64_t grace_ms;
  } cases[] = {
      {"the usual notice", seconds(120), 57'500},
      {"a long one", minutes(10), 60'000},
      {"a short one", seconds(25), 10'000},
      {"its time is over, and it is still there", -seconds(10), 10'000},
  };
  for (const auto& c : cases) {
    NoticeCluster again;
    again.Hears("a", c.left);
    EXPECT_EQ(again.grace_ms, c.grace_ms) << c.what;
  }
}

TEST_F(Notices, NothingNewIsPlacedThereAndWhoWaitsIsTold) {
  Hears("b", seconds(120));
  const JobId next = cluster.Submit("next");
  EXPECT_EQ(cluster.Job(next).state, JobState::kQueued);
  EXPECT_THAT(cluster.WhyWaits(next),
              HasSubstr("node b is being taken back by the cloud, at 01:48:40 UTC (terminate)"));
  EXPECT_FALSE(!cluster.reactor().reserved().empty() &&
               cluster.reactor().reserved().front().parts.front().node == NodeId("b"));
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning) << "it is not on b";
}

TEST_F(Notices, SaidAgainItIsNoNews) {
  Hears("a", seconds(120));
  const Notice first = *cluster.Node("a").notice;
  cluster.Decisions();
  cluster.Sent("a");
  Actions actions;
  cluster.reactor().OnHealth(NodeId("a"), {.notice = first}, cluster.now(), actions);
  EXPECT_THAT(actions, IsEmpty());
}

TEST_F(Notices, AMachineThatGoesWasEmptyAndIsNotCalledLost) {
  Hears("a", seconds(120));
  SavesAndEnds("a", 75);
  cluster.Pass(seconds(1));
  cluster.BringUp(job);
  cluster.Leave("a");
  cluster.Decisions();
  cluster.Pass(minutes(1));
  EXPECT_THAT(cluster.Decisions(),
              ElementsAre(HasSubstr("node a is out of reach"),
                          "node a was taken back by the cloud, at 01:48:40 UTC (terminate)"));
  EXPECT_EQ(cluster.Job(job).state, JobState::kRunning);
  EXPECT_EQ(ExplainNode(cluster.Node("a")), "was taken back by the cloud, at 01:48:40 UTC (terminate)");
}

TEST_F(Notices, AMachineThatGoesBeforeItsRanksDoCostsNoFailure) {
  Hears("a", seconds(5));
  cluster.Leave("a");
  cluster.Pass(minutes(1));
  EXPECT_THAT(NodesOf(job), ElementsAre("b"));
  EXPECT_EQ(cluster.Job(job).restarts, 0U);
}

TEST_F(Notices, ANodeIsUsedAgainWhenItIsBackOrTheNoticeIsTakenBack) {
  const JobId next = cluster.Submit("next", {.nodes = 2});
  Hears("b", seconds(120));
  cluster.Complete(job);
  EXPECT_EQ(cluster.Job(next).state, JobState::kQueued);
  cluster.Decisions();
  Hears("b", std::nullopt);
  cluster.Pass(seconds(1));
  EXPECT_THAT(cluster.Decisions(), Contains("node b is not being taken back any more"));
  EXPECT_EQ(cluster.Job(next).state, JobState::kStarting);

  NoticeCluster other;
  other.Hears("b", seconds(120));
  other.cluster.Leave("b");
  other.cluster.Pass(minutes(2));
  ASSERT_EQ(other.cluster.Node("b").state, NodeState::kLost);
  other.cluster.Decisions();
  ASSERT_TRUE(other.Joins("b", {}));
  EXPECT_THAT(other.cluster.Decisions(),
              ElementsAre("node b is back with 1 device", "node b is not being taken back any more"));
  EXPECT_TRUE(other.cluster.Node("b").Usable());
}

TEST_F(Notices, ADaemonThatRestartsHearsItAgain) {
  Hears("a", seconds(120));
  const Notice notice = *cluster.Node("a").notice;
  const RunKey run = cluster.RunOf(job);
  cluster.Restart();
  cluster.Pass(seconds(30));
  ASSERT_TRUE(Joins("a", {.notice = notice}, {{.run = run, .phase = RunPhase::kRunning}}));
  EXPECT_FALSE(cluster.Node("a").Usable());
  EXPECT_EQ(grace_ms, 42'500) << "of the 90 s that are left";
}

TEST_F(Notices, WhatStartsThereIsStoppedAndStartsElsewhere) {
  const JobId next = cluster.Submit("next");
  ASSERT_EQ(cluster.Job(next).state, JobState::kStarting);
  Hears("b", seconds(120));
  EXPECT_EQ(cluster.Job(next).reason.code, ReasonCode::kSpotNotice);
  cluster.Complete(job);
  cluster.Ends("b", next, {});
  cluster.Pass(seconds(1));
  EXPECT_THAT(NodesOf(next), ElementsAre("a"));
  EXPECT_EQ(cluster.Job(next).restarts, 0U);
}

TEST_F(Notices, AGangThatMayShrinkGoesOnWithTheRest) {
  cluster.Complete(job);
  const JobId gang = cluster.Submit("gang", {.nodes = 1, .max_nodes = 2});
  cluster.BringUp(gang);
  ASSERT_THAT(NodesOf(gang), ElementsAre("a", "b"));
  Hears("a", seconds(120));
  EXPECT_THAT(cluster.Sent("b"), Contains("checkpoint-stop 2/1")) << "a checkpoint needs all ranks";
  cluster.Wrote(gang, 5, Generation(1));
  cluster.Ends("a", gang, {ExitCode(0, 11)});
  cluster.Ends("b", gang, {ExitCode(1, 11)});
  cluster.Pass(seconds(1));
  EXPECT_THAT(NodesOf(gang), ElementsAre("b"));
  EXPECT_EQ(cluster.Job(gang).restarts, 0U);
}

TEST_F(Notices, AGangThatCanNotSaveAnyMoreIsNotWaitedFor) {
  cluster.Complete(job);
  const JobId gang = cluster.Submit("gang", {.nodes = 2});
  cluster.BringUp(gang);
  Hears("b", seconds(120));
  cluster.Sent("a");
  cluster.Ends("b", gang, {Killed(1, 11)});
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 2/1"));
  cluster.Ends("a", gang, {ExitCode(0, 143)});
  EXPECT_EQ(cluster.Job(gang).state, JobState::kQueued);
  EXPECT_EQ(cluster.Job(gang).restarts, 0U);
}

TEST_F(Notices, WhatIsBeingEndedAnywayIsLeftAlone) {
  cluster.Pause(job);
  Hears("a", seconds(120));
  SavesAndEnds("a", 75);
  EXPECT_EQ(cluster.Job(job).state, JobState::kPaused);
}

TEST_F(Notices, ANoticeWithoutATimeIsOneToo) {
  Actions actions;
  cluster.reactor().OnHealth(NodeId("a"), {.notice = Notice{}}, cluster.now(), actions);
  EXPECT_EQ(GraceOf(actions), 10'000) << "the job's own grace";
  cluster.Take(std::move(actions));
  EXPECT_EQ(ExplainNode(cluster.Node("a")), "is being taken back by the cloud");
}

}  // namespace
}  // namespace imgd
