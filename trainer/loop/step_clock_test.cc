#include "trainer/loop/step_clock.h"

#include <gtest/gtest.h>

namespace imgd::trainer {
namespace {

/// Passes time that the clock must see.
void Spend(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

TEST(StepClock, TimeIsThatOfThePartMarkedAtItsEndAndNothingElse) {
  using std::chrono::milliseconds;
  StepClock clock{at::kCPU};
  const auto start = std::chrono::steady_clock::now();
  for (int step = 0; step < 2; ++step) {
    Spend(milliseconds(20));  // between steps: nobody's
    clock.Start();
    Spend(milliseconds(2));
    clock.Mark(Part::kForward);
    Spend(milliseconds(4));
    clock.Mark(Part::kBackward);
    clock.Mark(Part::kCommunication);
  }
  const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto times = clock.Take();
  EXPECT_EQ(times.steps, 2U);
  EXPECT_GE(times.seconds(Part::kForward), 0.004);
  EXPECT_GE(times.seconds(Part::kBackward), 0.008);
  EXPECT_LE(
      times.seconds(Part::kForward) + times.seconds(Part::kBackward) + times.seconds(Part::kCommunication),
      all - 0.04);
  EXPECT_EQ(times.seconds(Part::kInput), 0);
  EXPECT_EQ(clock.Take().steps, 0U) << "taken";
  EXPECT_EQ(clock.SoFar().steps, 2U);
  EXPECT_EQ(clock.SoFar().seconds(Part::kBackward), times.seconds(Part::kBackward));
}

}  // namespace
}  // namespace imgd::trainer
