#include "tests/sim/replay.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <optional>

namespace imgd::sim {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;

/// A file of its own for each test: they run side by side.
std::string Written(const std::string& text) {
  const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string path = testing::TempDir() + "imgd-" + test + "-trace.swf";
  std::ofstream(path) << text;
  return path;
}

std::vector<double> Starts(const Replay& replay) {
  std::vector<double> starts;
  for (const auto& outcome : replay.outcomes) starts.push_back(outcome.start_s);
  return starts;
}

TEST(Swf, ReadsTheFieldsThatMatterAndTheHeader) {
  const auto trace =
      ReadSwf(Written("; MaxNodes: 2\n; MaxProcs: 8\n\n"
                      "2 30 -1 60 4 -1 -1 -1 120 -1 1 -1 -1 -1 -1 -1 -1 -1\n"
                      "1 0 5 10 1 -1 -1 2 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n"
                      "3 40 -1 -1 -1 -1 -1 2 -1 -1 5 -1 -1 -1 -1 -1 -1 -1\n"));
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  EXPECT_EQ(trace->nodes, 2u);
  EXPECT_EQ(trace->processors, 8u);
  ASSERT_EQ(trace->jobs.size(), 2u) << "the third never ran";
  EXPECT_EQ(trace->jobs[0].number, 1);
  EXPECT_EQ(trace->jobs[0].processors, 2u);
  EXPECT_EQ(trace->jobs[1].processors, 4u) << "nobody said what was asked for";
  EXPECT_DOUBLE_EQ(trace->jobs[1].requested_s, 120);
}

TEST(Swf, NamesTheLineThatIsNone) {
  const auto trace = ReadSwf(Written("; Version: 2.2\n1 0 5\n"));
  ASSERT_FALSE(trace.has_value());
  EXPECT_THAT(trace.error().message, HasSubstr("-trace.swf:2: found '1 0 5'"));
}

TEST(Swf, AGeneratedTraceCanBeReadAndBeginsWithAFullCluster) {
  const auto trace = ReadSwf(Written(GenerateSwf(1, 100, 0.9)));
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  EXPECT_EQ(trace->processors, 1024u);
  const auto begins = std::partition_point(trace->jobs.begin(), trace->jobs.end(),
                                           [](const auto& job) { return job.submit_s == 0; });
  EXPECT_EQ(trace->jobs.end() - begins, 100);
  EXPECT_GT(begins - trace->jobs.begin(), 10);
  const double last = trace->jobs.back().submit_s;
  double used = 0;
  for (const auto& job : trace->jobs) used += std::min(job.run_s, last - job.submit_s) * job.processors;
  EXPECT_NEAR(used / (last * 1024), 0.9, 0.05) << "the load that was asked for";
}

/// The averages that swf.cc has from a published cluster.
TEST(Swf, AGeneratedTraceHasThePublishedShape) {
  const auto trace = ReadSwf(Written(GenerateSwf(1, 30'000)));
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  std::vector<double> runs;
  std::vector<double> sizes;
  for (const auto& job : trace->jobs) {
    if (job.submit_s == 0) continue;  // what is left of long ones
    runs.push_back(job.run_s);
    sizes.push_back(job.processors);
  }
  const auto mean = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };
  std::sort(runs.begin(), runs.end());
  EXPECT_NEAR(runs[runs.size() / 2], 204, 15);
  EXPECT_NEAR(mean(runs), 13041, 3000) << "most of it is of a few jobs of weeks";
  EXPECT_NEAR(mean(sizes), 6.74, 0.4);
}

/// Two devices. The second job waits for both; the third would fit beside the first and end in time, the
/// fourth would not end in time.
const std::vector<SwfJob> kJobs = {
    {1, 0, 1000, 1, 1000}, {2, 1, 100, 2, 100}, {3, 2, 50, 1, 60}, {4, 3, 2000, 1, 2000}};
constexpr Machine kMachine{.nodes = 1, .devices = 2};

TEST(Replay, FifoLetsNobodyPass) {
  EXPECT_THAT(Starts(ReplayFifo(kJobs, kMachine)),
              ElementsAre(DoubleEq(0), DoubleEq(1000), DoubleEq(1100), DoubleEq(1100)));
}

TEST(Replay, EasyFillsInWhatEndsInTime) {
  const Replay replay = ReplayEasy(kJobs, kMachine);
  EXPECT_THAT(Starts(replay), ElementsAre(DoubleEq(0), DoubleEq(1000), DoubleEq(2), DoubleEq(1100)));
  EXPECT_EQ(replay.outcomes[1].promised_s, 1000);
}

TEST(Replay, OursDoesSoToo) {
  const Replay replay = ReplayOurs(kJobs, kMachine);
  EXPECT_THAT(Starts(replay), ElementsAre(DoubleEq(0), DoubleEq(1000), DoubleEq(2), DoubleEq(1100)));
  EXPECT_EQ(replay.outcomes[1].promised_s, 1130) << "a start may take two minutes and the grace time longer";
}

/// The fourth job comes when the second has both devices from 1000 to 1130 at the latest, as far as anybody
/// knows.
TEST(Replay, OursSaysAtOnceWhenAJobWillProbablyStart) {
  const Replay replay = ReplayOurs(kJobs, kMachine);
  EXPECT_EQ(replay.outcomes[0].forecast_s, std::nullopt) << "it did not wait";
  EXPECT_EQ(replay.outcomes[1].forecast_s, 1130);
  EXPECT_EQ(replay.outcomes[3].forecast_s, 1360) << "each of two starts may take 130 s more";
}

TEST(Replay, WhoIsToldOfProgressPredictsBetter) {
  const Replay replay = ReplayOurs(kJobs, kMachine, Told::kProgress);
  EXPECT_EQ(replay.outcomes[1].promised_s, 1000);
  EXPECT_EQ(replay.outcomes[1].forecast_s, 1000);
}

TEST(Replay, TheTablesHaveWhatWasAskedFor) {
  EXPECT_EQ(TableOf({ReplayFifo(kJobs, kMachine), ReplayEasy(kJobs, kMachine), ReplayOurs(kJobs, kMachine)},
                    kMachine),
            "| policy | utilisation | jobs that wait | mean wait | p95 wait | bounded slow-down |\n"
            "| --- | --- | --- | --- | --- | --- |\n"
            "| FIFO | 50.0 % | 75 % | 798 s | 1097 s | 9.1 |\n"
            "| EASY | 66.7 % | 50 % | 524 s | 999 s | 3.6 |\n"
            "| imgd | 66.7 % | 50 % | 524 s | 999 s | 3.6 |\n"
            "\n"
            "| policy | predicted start | jobs | error: median | p90 | later than predicted |\n"
            "| --- | --- | --- | --- | --- | --- |\n"
            "| EASY | when it is first reserved | 2 | 0 s | 0 s | 0 (0.0 %) |\n"
            "| imgd | when it is first reserved | 2 | 130 s | 130 s | 0 (0.0 %) |\n"
            "| imgd | forecast when it is submitted | 2 | 130 s | 130 s | 0 (0.0 %) |\n");
}

TEST(Replay, WhatTheMachineCanNotHoldIsLeftOut) {
  EXPECT_EQ(JobsFor({.jobs = kJobs}, {.nodes = 1, .devices = 1}).size(), 3u);
}

}  // namespace
}  // namespace imgd::sim
