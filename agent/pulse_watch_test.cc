#include "agent/pulse_watch.h"

#include <gtest/gtest.h>

namespace imgd {
namespace {

using std::chrono::seconds;

constexpr Instant kNoon{std::chrono::hours(12)};

TEST(PulseWatch, CountsForHowLongNothingChanged) {
  PulseWatch watch;
  EXPECT_FALSE(watch.Take(std::nullopt, kNoon)) << "it has not begun";
  PulseState state{.beats = 5, .moves = 9, .step = 1};
  EXPECT_EQ(watch.Take(state, kNoon + seconds(1))->silent, seconds(0)) << "since this agent looks";
  ++state.beats;
  auto seen = watch.Take(state, kNoon + seconds(2));
  EXPECT_EQ(seen->silent, seconds(0));
  EXPECT_EQ(seen->still, seconds(1));
  seen = watch.Take(state, kNoon + seconds(3));
  EXPECT_EQ(seen->silent, seconds(1));
  EXPECT_EQ(seen->still, seconds(2));
  seen = watch.Take(std::nullopt, kNoon + seconds(4));
  EXPECT_EQ(seen->still, seconds(3)) << "a rank that is stopped while it writes can't be read";
  ++state.beats;
  ++state.moves;
  seen = watch.Take(state, kNoon + seconds(5));
  EXPECT_EQ(seen->silent, seconds(0));
  EXPECT_EQ(seen->still, seconds(0));
}

TEST(PulseWatch, WhatTheAgentSleptThroughDoesNotCount) {
  PulseWatch watch;
  const PulseState state{.beats = 5, .moves = 9};
  watch.Take(state, kNoon);
  EXPECT_EQ(watch.Take(state, kNoon + seconds(600))->silent, seconds(2));
}

}  // namespace
}  // namespace imgd
