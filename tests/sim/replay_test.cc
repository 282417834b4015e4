#include "tests/sim/replay.h"

#include <gmock/gmock.h>

#include <fstream>

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

TEST(Swf, AGeneratedTraceCanBeRead) {
  const auto trace = ReadSwf(Written(GenerateSwf(1, 100)));
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  EXPECT_EQ(trace->jobs.size(), 100u);
  EXPECT_EQ(trace->processors, 1144u);
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

TEST(Replay, TheTableHasWhatWasAskedFor) {
  EXPECT_THAT(TableOf({ReplayFifo(kJobs, kMachine)}, kMachine),
              HasSubstr("| FIFO | 50.0 % | 798 s | 1097 s | 9.1 | - | - | - |"));
}

TEST(Replay, WhatTheMachineCanNotHoldIsLeftOut) {
  EXPECT_EQ(JobsFor({.jobs = kJobs}, {.nodes = 1, .devices = 1}).size(), 3u);
}

}  // namespace
}  // namespace imgd::sim
