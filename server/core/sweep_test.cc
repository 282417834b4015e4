#include "server/core/sweep.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>

#include "server/core/testing/test_cluster.h"

namespace imgd {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Halving, ASharePassesEachRungAndNeverNobody) {
  const Halving thirds{.factor = 3, .rungs = {1, 3, 9}};
  struct Row {
    uint32_t members;
    std::vector<uint32_t> kept;
  };
  for (const auto& [members, kept] :
       std::vector<Row>{{27, {9, 3, 1}}, {9, {3, 1, 1}}, {10, {3, 1, 1}}, {2, {1, 1, 1}}, {1, {1, 1, 1}}}) {
    for (size_t rung = 0; rung < kept.size(); ++rung)
      EXPECT_EQ(thirds.Kept(members, rung), kept[rung]) << members << " at " << rung;
  }
  EXPECT_EQ((Halving{.factor = 2}.Kept(9, 0)), 4u);
}

/// Of a sweep of jobs 1 and on. `rungs`: what each had there, in their order; nothing of who has not come.
using Figures = std::vector<std::vector<std::optional<double>>>;

SweepRecord SweepWith(const Figures& rungs, uint32_t factor, bool max = true) {
  SweepRecord sweep{.id = JobId(1), .members = static_cast<uint32_t>(rungs.front().size())};
  sweep.halving = Halving{.max = max, .factor = factor};
  for (const auto& figures : rungs) {
    auto& results = sweep.rungs.emplace_back();
    for (size_t i = 0; i < figures.size(); ++i) {
      if (figures[i]) results.emplace(sweep.Member(static_cast<uint32_t>(i)), *figures[i]);
    }
  }
  return sweep;
}

/// "3@0": job 3, at the first rung. `ended`: of those who have not come.
std::vector<std::string> Out(const SweepRecord& sweep, const std::set<uint64_t>& ended = {}) {
  std::vector<std::string> out;
  for (const auto& [job, rung] : OutOf(sweep, [&](JobId id) { return !ended.contains(id.value()); }))
    out.push_back(fmt::format("{}@{}", job, rung));
  std::sort(out.begin(), out.end());
  return out;
}

TEST(Halving, OnlyWhoIsSurelyNotAmongTheBestIsOut) {
  const double nan = std::nan("");
  const auto no = std::nullopt;
  EXPECT_THAT(Out(SweepWith({{no, no, no, no}}, 2)), IsEmpty());
  EXPECT_THAT(Out(SweepWith({{0.1, 0.2, no, no}}, 2)), IsEmpty());
  EXPECT_THAT(Out(SweepWith({{0.1, 0.2, 0.3, no}}, 2)), ElementsAre("1@0"));
  EXPECT_THAT(Out(SweepWith({{0.1, 0.2, 0.3, no}}, 2, false)), ElementsAre("3@0"));
  EXPECT_THAT(Out(SweepWith({{0.2, 0.2, 0.2}}, 3)), ElementsAre("2@0", "3@0")) << "of equals the first stays";
  EXPECT_THAT(Out(SweepWith({{nan, 0.1, nan, no}}, 2)), ElementsAre("3@0"))
      << "what is no number is the worst";
  EXPECT_THAT(Out(SweepWith({{nan, 0.1, nan}}, 3, false)), ElementsAre("1@0", "3@0"));
}

TEST(Halving, WhoIsOutOfAnEarlierRungIsInNobodysWayAtALaterOne) {
  // All four went on to the second rung before the first was decided; there the two that were out are better.
  EXPECT_THAT(Out(SweepWith({{0.1, 0.2, 0.3, 0.4}, {0.9, 0.8, 0.5, 0.6}}, 2)),
              ElementsAre("1@0", "2@0", "3@1"));
}

TEST(Halving, WhoMayYetBeOutOfAnEarlierRungStopsNobodyAtALaterOne) {
  const auto no = std::nullopt;
  // Where jobs 3 and 4 are better than job 1 at the first rung, job 2 is the one that is left.
  EXPECT_THAT(Out(SweepWith({{0.1, 0.2, no, no}, {0.9, 0.8, no, no}}, 2)), IsEmpty());
  EXPECT_THAT(Out(SweepWith({{0.1, 0.2, 0.05, no}, {0.9, 0.8, no, no}}, 2)), ElementsAre("3@0"));
  EXPECT_THAT(Out(SweepWith({{0.1, 0.2, 0.05, no}, {0.9, 0.8, no, no}}, 2), {4}), ElementsAre("2@1", "3@0"))
      << "job 4 has ended, so job 1 surely passed";
}

TEST(Halving, TheOrderInWhichMembersComeDoesNotMatter) {
  const Figures all = {{0.3, 0.9, 0.1, 0.7}, {0.9, 0.2, 0.9, 0.3}};
  // Each member twice: it comes to the first rung, then to the second.
  std::vector<size_t> order = {0, 0, 1, 1, 2, 2, 3, 3};
  do {
    Figures seen(2, std::vector<std::optional<double>>(4));
    std::vector<std::string> out;
    for (const size_t member : order) {
      const size_t rung = seen[0][member] ? 1 : 0;
      seen[rung][member] = all[rung][member];
      const auto now = Out(SweepWith(seen, 2));
      EXPECT_TRUE(std::includes(now.begin(), now.end(), out.begin(), out.end())) << "one came back";
      out = now;
    }
    EXPECT_THAT(out, ElementsAre("1@0", "2@1", "3@0"));
  } while (std::next_permutation(order.begin(), order.end()));
}

struct Sweep : testing::Test {
  Sweep() { cluster.Join("a", 4); }
  JobId Member(JobId first, uint32_t number) const { return JobId(first.value() + number - 1); }
  /// The states of so many jobs from this one on, by their first letters.
  std::string States(JobId first, uint32_t members) {
    std::string out;
    for (uint32_t i = 1; i <= members; ++i) out += NameOf(cluster.Job(Member(first, i)).state)[0];
    return out;
  }
  TestCluster cluster;
};

TEST_F(Sweep, NoMoreRunAtOnceThanMayAndTheNextStartsWhenOneEnds) {
  const JobId first = cluster.SubmitSweep("rn18", 5, 2);
  EXPECT_EQ(States(first, 5), "SSQQQ");
  EXPECT_EQ(cluster.Job(Member(first, 3)).name, "rn18[3]");
  EXPECT_EQ(cluster.Job(Member(first, 3)).reason.code, ReasonCode::kSweepFull);
  EXPECT_EQ(cluster.Job(Member(first, 3)).reason.text,
            "waits for its turn: 2 of sweep 1 (rn18) may run at once");
  EXPECT_THAT(cluster.reactor().state().queue(), IsEmpty());
  EXPECT_EQ(cluster.reactor().state().QueuedOf("user ada"), 3u) << "those who wait for a place wait too";
  EXPECT_TRUE(cluster.Cancel(first));
  cluster.Ends("a", first, {Killed(0, 15)});
  EXPECT_EQ(States(first, 5), "CSSQQ");
}

TEST_F(Sweep, TheNextIsOfTheHighestPriority) {
  const JobId first = cluster.SubmitSweep("rn18", 4, 1);
  ASSERT_TRUE(cluster.SetPriority(Member(first, 4), 50));
  EXPECT_TRUE(cluster.Cancel(first));
  cluster.Ends("a", first, {Killed(0, 15)});
  EXPECT_EQ(States(first, 4), "CQQS");
}

TEST_F(Sweep, ARetryKeepsItsPlaceAndAPausedJobGivesItUp) {
  const JobId first = cluster.SubmitSweep("rn18", 3, 1);
  cluster.BringUp(first);
  cluster.Ends("a", first, {Killed(0, 9)});
  EXPECT_EQ(States(first, 3), "QQQ") << "it waits for its retry";
  cluster.Pass(seconds(2));
  EXPECT_EQ(States(first, 3), "SQQ");
  cluster.BringUp(first);
  EXPECT_TRUE(cluster.Pause(first));
  cluster.Ends("a", first, {Killed(0, 15)});
  EXPECT_EQ(States(first, 3), "PSQ");
  EXPECT_TRUE(cluster.Resume(first));
  EXPECT_EQ(cluster.Job(first).reason.code, ReasonCode::kSweepFull);
  EXPECT_TRUE(cluster.Cancel(Member(first, 2)));
  EXPECT_EQ(States(first, 3), "QSQ") << "until its ranks have ended the second has its place";
}

TEST_F(Sweep, OverARestartThoseWhoHadAPlaceHaveIt) {
  const JobId first = cluster.SubmitSweep("rn18", 4, 2);
  cluster.Restart();
  EXPECT_EQ(States(first, 4), "SSQQ");
  cluster.Join("a", 4);
  EXPECT_EQ(States(first, 4), "SSQQ");
  EXPECT_TRUE(cluster.Cancel(first));
  cluster.Ends("a", first, {Killed(0, 15)});
  EXPECT_EQ(States(first, 4), "CSSQ");
}

TEST_F(Sweep, AFailedCommitLeavesNoneOfIt) {
  cluster.FailCommit([&](Actions& out) {
    SweepSubmission sweep{.name = "rn18", .owner = "ada", .max_running = 1};
    for (int i = 0; i < 3; ++i) sweep.members.push_back({.name = "rn18[1]", .owner = "ada"});
    cluster.reactor().OnSubmitSweep(sweep, cluster.now(), out);
  });
  EXPECT_THAT(cluster.reactor().state().sweeps(), IsEmpty());
  EXPECT_EQ(cluster.reactor().state().QueuedOf("user ada"), 0u);
}

TEST_F(Sweep, ASweepIsForgottenWhenItsLastJobHasEnded) {
  const JobId first = cluster.SubmitSweep("rn18", 2, 1);
  EXPECT_TRUE(cluster.Cancel(Member(first, 2)));
  EXPECT_EQ(cluster.reactor().state().sweeps().size(), 1u);
  cluster.BringUp(first);
  cluster.Complete(first);
  EXPECT_THAT(cluster.reactor().state().sweeps(), IsEmpty());
}

struct Halved : Sweep {
  Halved() {
    first = cluster.SubmitSweep("rn18", 4, 0, Halving{.factor = 2, .rungs = {1, 2}});
    for (uint32_t i = 1; i <= 4; ++i) cluster.BringUp(Member(first, i));
    cluster.Sent("a");
  }
  JobId first;
};

TEST_F(Halved, TheWorstAreStoppedAtOnceAndHaveCompleted) {
  cluster.Epoch(Member(first, 1), 1, 0.5);
  cluster.Epoch(Member(first, 2), 1, 0.612);
  EXPECT_THAT(cluster.Sent("a"), IsEmpty());
  cluster.Epoch(Member(first, 3), 1, 0.7);
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 1/1"));
  EXPECT_THAT(cluster.Job(first).reason.text, HasSubstr("the ranks are being stopped"));
  cluster.Ends("a", first, {Killed(0, 15)});
  EXPECT_EQ(cluster.Job(first).state, JobState::kCompleted);
  EXPECT_EQ(cluster.Job(first).reason.code, ReasonCode::kHalved);
  EXPECT_EQ(cluster.Job(first).reason.text,
            "stopped at epoch 1: top1 50.0 % is not among the best 2 of the 4 of sweep 1 (rn18)");
  cluster.Epoch(Member(first, 4), 1, 0.1);
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("forget 1/1", "stop 4/1"));
  cluster.Epoch(Member(first, 2), 2, 0.9);
  cluster.Epoch(Member(first, 3), 2, 0.8);
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 3/1")) << "one of four is left";
}

TEST_F(Halved, OneThatWaitsOrIsPausedIsStoppedWhereItIs) {
  cluster.Epoch(Member(first, 1), 1, 0.1);
  cluster.Epoch(Member(first, 2), 1, 0.2);
  cluster.Ends("a", Member(first, 1), {Killed(0, 9)});  // its retry waits
  EXPECT_TRUE(cluster.Pause(Member(first, 2)));
  cluster.Ends("a", Member(first, 2), {Killed(0, 15)});
  cluster.Epoch(Member(first, 3), 1, 0.3);
  EXPECT_EQ(cluster.Job(Member(first, 1)).reason.code, ReasonCode::kHalved);
  cluster.Epoch(Member(first, 4), 1, 0.4);
  EXPECT_EQ(States(first, 4), "CCRR");
}

TEST_F(Halved, AValueIsThatOfTheFirstTimeAndSurvivesARestart) {
  cluster.Epoch(Member(first, 1), 1, 0.1);
  cluster.Epoch(Member(first, 1), 1, 0.9);
  std::vector<RunReport> runs;
  for (uint32_t i = 1; i <= 4; ++i)
    runs.push_back({.run = cluster.RunOf(Member(first, i)), .phase = RunPhase::kRunning});
  cluster.Restart();
  cluster.Join("a", 4, runs);
  cluster.Sent("a");
  cluster.Epoch(Member(first, 2), 1, 0.2);
  cluster.Epoch(Member(first, 3), 1, 0.3);
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 1/1"));
  cluster.Restart();
  runs.front().phase = RunPhase::kGone;
  cluster.Join("a", 4, runs);
  EXPECT_EQ(States(first, 4), "CRRR");
  EXPECT_EQ(cluster.Job(first).reason.code, ReasonCode::kHalved);
}

TEST_F(Halved, ThatAMemberFailedMaySettleWhoIsLeft) {
  cluster.Epoch(Member(first, 1), 1, 0.3);
  cluster.Epoch(Member(first, 2), 1, 0.4);
  cluster.Epoch(Member(first, 3), 1, 0.1);
  cluster.Epoch(Member(first, 1), 2, 0.9);
  cluster.Epoch(Member(first, 2), 2, 0.8);
  EXPECT_THAT(cluster.Sent("a"), ElementsAre("stop 3/1"))
      << "job 4 may be better than job 1 at the first rung";
  EXPECT_TRUE(cluster.Cancel(Member(first, 4)));
  cluster.Ends("a", Member(first, 4), {Killed(0, 15)});
  EXPECT_THAT(cluster.Sent("a"), testing::Contains("stop 2/1"));
}

TEST_F(Halved, ACancelComesFirstAndItCannotBePausedAnyMore) {
  cluster.Epoch(Member(first, 1), 1, 0.1);
  cluster.Epoch(Member(first, 2), 1, 0.2);
  cluster.Epoch(Member(first, 3), 1, 0.3);
  const auto paused = cluster.Pause(first);
  ASSERT_FALSE(paused);
  EXPECT_THAT(paused.error().message, HasSubstr("it is being stopped at epoch 1"));
  EXPECT_TRUE(cluster.Cancel(first));
  cluster.Ends("a", first, {Killed(0, 15)});
  EXPECT_EQ(cluster.Job(first).state, JobState::kCancelled);
}

TEST_F(Halved, OneThatTrainedToItsEndMeanwhileIsFinished) {
  cluster.Epoch(Member(first, 1), 1, 0.1);
  cluster.Epoch(Member(first, 2), 1, 0.2);
  cluster.Finished(first);
  cluster.Epoch(Member(first, 3), 1, 0.3);
  cluster.Ends("a", first, {ExitCode(0, 0)});
  EXPECT_EQ(cluster.Job(first).reason.code, ReasonCode::kFinished);
}

}  // namespace
}  // namespace imgd
