#include "trainer/pulse.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace imgd::trainer {
namespace {

using std::chrono::milliseconds;

JobSpec::Limits SomeLimits() {
  return {.silence_ms = 15'000,
          .step_ms = 20'000,
          .input_ms = 30'000,
          .start_ms = 100'000,
          .autotune_ms = 50'000,
          .validation_ms = 60'000,
          .checkpoint_ms = 0};
}

TEST(RunningMedian, IsTheMiddleOfTheLatestTimes) {
  RunningMedian times;
  EXPECT_EQ(times.median(), milliseconds(0));
  times.Add(milliseconds(9));
  EXPECT_EQ(times.median(), milliseconds(9));
  times.Add(milliseconds(1));
  times.Add(milliseconds(2));
  EXPECT_EQ(times.median(), milliseconds(2));
  for (int i = 0; i < 40; ++i) times.Add(milliseconds(7));
  EXPECT_EQ(times.median(), milliseconds(7));
}

TEST(Pulse, WhatTheRankDoesDecidesHowLongItMayTake) {
  Pulse pulse(SomeLimits());
  EXPECT_EQ(pulse.State().limit_ms, 100'000u);
  EXPECT_EQ(pulse.State().silence_limit_ms, 15'000u);
  pulse.SetActivity(Activity::kAutotune);
  EXPECT_EQ(pulse.State().limit_ms, 50'000u);
  {
    const Pulse::During input(pulse, Activity::kInput);
    EXPECT_EQ(pulse.State().limit_ms, 50'000u) << "the first batch may take as long as the first step";
  }
  pulse.SetActivity(Activity::kStep);
  EXPECT_EQ(pulse.State().limit_ms, 20'000u);
  {
    const Pulse::During validation(pulse, Activity::kValidation);
    EXPECT_EQ(pulse.State().limit_ms, 60'000u);
    {
      const Pulse::During checkpoint(pulse, Activity::kCheckpoint);
      EXPECT_EQ(pulse.State().limit_ms, 0u) << "for ever";
    }
    EXPECT_EQ(pulse.State().limit_ms, 60'000u);
  }
  EXPECT_EQ(pulse.State().limit_ms, 20'000u);
}

TEST(Pulse, SlowStepsMayTakeFiveTimesTheMedian) {
  Pulse pulse(SomeLimits());
  pulse.SetActivity(Activity::kStep);
  pulse.AddStep(milliseconds(1'000));
  EXPECT_EQ(pulse.State().limit_ms, 20'000u);
  pulse.AddStep(milliseconds(9'000));
  pulse.AddStep(milliseconds(9'000));
  EXPECT_EQ(pulse.State().limit_ms, 45'000u);
}

TEST(Pulse, IsWrittenIntoTheRunsFolderAtOnce) {
  const auto folder = std::filesystem::path(testing::TempDir());
  Pulse pulse(SomeLimits());
  const int local_rank = ::getpid();  // a name of this test's own
  ASSERT_TRUE(pulse.WriteTo(folder, local_rank).has_value());
  uint64_t begun = 7;
  pulse.CountCollectivesBy([&begun] { return begun; });
  pulse.SetPosition(12, "forward pass");
  const auto path = folder / PulseFileName(static_cast<uint32_t>(local_rank));
  const auto state = ReadPulse(path);
  ASSERT_TRUE(state.has_value()) << state.error().ToString();
  EXPECT_EQ(state->step, 12u);
  EXPECT_EQ(state->what, "forward pass");
  EXPECT_EQ(state->collectives, 7u);
  EXPECT_EQ(state->moves, pulse.State().moves);
  while (ReadPulse(path)->beats == state->beats) ::usleep(1000);  // it beats by itself
  RemovePulse(path);
}

TEST(Pulse, WhoDoesNotLetItInGivesNoAnswerUntilItDoes) {
  Pulse pulse(SomeLimits());
  const auto beats = [&pulse] { return pulse.State().beats; };
  pulse.SetPosition(0, "joining the gang");
  pulse.SetConnecting("10.78.0.11");
  EXPECT_EQ(pulse.State().unanswered, "") << "it may come at once";
  while (pulse.State().unanswered.empty()) ::usleep(1000);
  EXPECT_EQ(pulse.State().unanswered, "10.78.0.11");
  pulse.SetConnecting("");
  pulse.SetPosition(0, "meeting the other ranks");
  EXPECT_EQ(pulse.State().unanswered, "");
  for (const auto begun = beats(); beats() < begun + 8;) ::usleep(1000);
  EXPECT_EQ(pulse.State().unanswered, "") << "it stands still for another reason";
}

}  // namespace
}  // namespace imgd::trainer
