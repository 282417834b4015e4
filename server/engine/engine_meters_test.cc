// What is counted of jobs as they go, from the rows of their histories.
#include "server/engine/engine_meters.h"

#include <gmock/gmock.h>

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using enum JobState;

constexpr JobId kOne{1};

WallTime At(int64_t seconds) { return {seconds * 1'000'000}; }

struct EngineMetersTest : testing::Test {
  void Comes(int64_t seconds, ReasonCode why = ReasonCode::kSubmitted) {
    meters.OnEvent({.job = kOne, .to = kQueued, .first = true, .reason = {why, ""}, .time = At(seconds)});
  }
  void Goes(int64_t seconds, JobState from, JobState to, ReasonCode why = ReasonCode::kPlaced) {
    meters.OnEvent({.job = kOne, .from = from, .to = to, .reason = {why, ""}, .time = At(seconds)});
  }
  EngineCounts Counts() { return meters.Counts({}, At(0)); }
  /// How many waits were counted, and their sum in seconds.
  std::pair<uint64_t, double> Waits() {
    const auto histogram = Counts().queue_wait.histogram;
    return {histogram.sample_count, histogram.sample_sum};
  }
  /// Those that there were; of the others it is said that there were none.
  std::map<ReasonCode, double> Restarts() {
    auto restarts = Counts().restarts;
    std::erase_if(restarts, [](const auto& one) { return one.second == 0; });
    return restarts;
  }
  EngineMeters meters;
};

TEST_F(EngineMetersTest, RestartsAreCountedFromZeroOn) {
  const auto restarts = Counts().restarts;
  for (const auto reason :
       {ReasonCode::kRankKilled, ReasonCode::kNodeLost, ReasonCode::kPreempted, ReasonCode::kGrows})
    EXPECT_EQ(restarts.count(reason), 1u) << static_cast<int>(reason);
}

TEST_F(EngineMetersTest, AJobWaitsFromItsSubmissionToItsStart) {
  Comes(100);
  Goes(101, kQueued, kQueued, ReasonCode::kWaitsForDevices);
  Goes(140, kQueued, kQueued, ReasonCode::kReserved);
  EXPECT_THAT(Waits(), Pair(0, 0));
  Goes(160, kQueued, kStarting);
  EXPECT_THAT(Waits(), Pair(1, 60));
  Goes(170, kStarting, kRunning, ReasonCode::kAllRanksStarted);
  Goes(200, kRunning, kCompleted, ReasonCode::kFinished);
  Goes(201, kCompleted, kCompleted, ReasonCode::kFinished);  // an event of its trainer was lost
  EXPECT_THAT(Counts().jobs_ended, ElementsAre(Pair(kCompleted, 1), Pair(kFailed, 0), Pair(kCancelled, 0)));
  EXPECT_EQ(Counts().jobs_submitted, 1);
  EXPECT_THAT(Restarts(), IsEmpty());
}

TEST_F(EngineMetersTest, EachStartHasAWaitAndEachWayBackAReason) {
  Comes(0);
  Goes(1, kQueued, kStarting);
  Goes(2, kStarting, kRunning);
  Goes(50, kRunning, kQueued, ReasonCode::kNodeLost);
  Goes(57, kQueued, kStarting);
  Goes(58, kStarting, kQueued, ReasonCode::kStartFailed);
  Goes(60, kQueued, kStarting);
  Goes(70, kStarting, kPreempting);
  Goes(71, kPreempting, kQueued, ReasonCode::kPreempted);
  Goes(72, kQueued, kPaused, ReasonCode::kPausedByUser);
  Goes(90, kPaused, kQueued, ReasonCode::kResumedByUser);
  Goes(93, kQueued, kStarting);
  EXPECT_THAT(Waits(), Pair(4, 1 + 7 + 2 + 3)) << "while it was paused it did not wait";
  EXPECT_THAT(Restarts(), ElementsAre(Pair(ReasonCode::kNodeLost, 1), Pair(ReasonCode::kStartFailed, 1),
                                      Pair(ReasonCode::kPreempted, 1)));
}

TEST_F(EngineMetersTest, WhatAJobWaitsForByItsOwnWishIsNoWaiting) {
  struct Case {
    const char* what;
    ReasonCode code;
    double waited;
  };
  for (const auto& [what, code, waited] :
       {Case{"after another job", ReasonCode::kAfterJob, 0}, Case{"until a time", ReasonCode::kNotBefore, 0},
        Case{"for its turn in the sweep", ReasonCode::kSweepFull, 0},
        Case{"behind another job", ReasonCode::kWaitsBehindJob, 1000}}) {
    const double before = Waits().second;
    Comes(0);
    Goes(0, kQueued, kQueued, code);
    Goes(1000, kQueued, kStarting);
    EXPECT_EQ(Waits().second - before, waited) << what;
    Comes(0);
    Goes(0, kQueued, kQueued, code);
    Goes(1000, kQueued, kQueued, ReasonCode::kWaitsForDevices);
    Goes(1020, kQueued, kStarting);
    EXPECT_EQ(Waits().second - before, waited * 2 + 20) << what << ", then for devices";
  }
}

TEST_F(EngineMetersTest, AClockThatWasSetBackMakesNoNegativeWait) {
  Comes(100);
  Goes(50, kQueued, kStarting);
  EXPECT_THAT(Waits(), Pair(1, 0));
}

TEST_F(EngineMetersTest, JobsOfAnEarlierDaemonWaitSinceTheyWereSubmitted) {
  std::map<JobId, JobRecord> jobs;
  jobs[kOne] = {.id = kOne, .state = kQueued, .submitted = At(10)};
  jobs[JobId(2)] = {.id = JobId(2), .state = kQueued, .generation = Generation(3), .submitted = At(10)};
  meters.Begin(jobs, {}, At(0));
  Goes(30, kQueued, kStarting);
  meters.OnEvent({.job = JobId(2), .from = kQueued, .to = kStarting, .time = At(40)});
  EXPECT_THAT(Waits(), Pair(1, 20)) << "since when one waits that ran before nobody knows";
}

TEST_F(EngineMetersTest, WhatIsSpentOnlyGrowsAndCountsFromTheDaemonsBeginning) {
  const auto used = [](const std::string& account, double device_seconds, double cost) {
    AccountUse use{.account = account};
    use.used.Add(device_seconds, cost, At(0), At(1));
    return use;
  };
  meters.Begin({}, {used("user ada", 1000, 5)}, At(1));
  EXPECT_EQ(meters.Counts({used("user ada", 1000, 5)}, At(1)).spend, 0);
  const auto counts =
      meters.Counts({used("user ada", 1500, 7), used("user bob", 100, 1), used("project p", 600, 3)}, At(1));
  EXPECT_EQ(counts.device_seconds, 600) << "a project's are its users'";
  EXPECT_EQ(counts.spend, 3);
  EXPECT_EQ(meters.Counts({used("user ada", 1500, 7)}, At(1)).spend, 3) << "bob is forgotten";
  EXPECT_EQ(meters.Counts({used("user ada", 1600, 8)}, At(1)).spend, 4);
}

TEST_F(EngineMetersTest, NoticesThatANodeIsTakenBackAndNodesThatAreLost) {
  meters.OnDecision({.node = NodeId("a"), .reason = {ReasonCode::kSpotNotice, ""}, .actor = "agent:a"});
  meters.OnDecision({.node = NodeId("a"), .reason = {ReasonCode::kNodeWell, ""}, .actor = "agent:a"});
  meters.OnDecision({.node = NodeId("c"), .reason = {ReasonCode::kSpotNotice, ""}, .actor = "scheduler"});
  EXPECT_EQ(Counts().spot_notices, 1);
  EXPECT_EQ(Counts().nodes_lost, 0) << "one that was to go is not missed";
  meters.OnDecision({.node = NodeId("b"), .reason = {ReasonCode::kNodeLost, ""}});
  meters.OnDecision({.node = NodeId("b"), .reason = {ReasonCode::kNodeHeard, ""}});
  meters.OnDecision({.node = NodeId("b"), .reason = {ReasonCode::kNodeLost, ""}});
  EXPECT_EQ(Counts().nodes_lost, 2) << "however many of them are lost now";
}

}  // namespace
}  // namespace imgd
