#include "server/engine/refusals.h"

#include <gmock/gmock.h>

namespace imgd {
namespace {

using namespace std::chrono_literals;
using testing::Optional;

TEST(Refusals, EachTextOnceAnHourAndTheCountOfTheRest) {
  Refusals refusals(50);
  const Instant now{};
  EXPECT_THAT(refusals.Note("10.0.0.1", "bad token", now), Optional<std::string>("bad token"));
  int said = 0;
  std::string last;
  for (int i = 0; i < 1000; ++i) {
    if (const auto text = refusals.Note("10.0.0.1", "bad token", now)) {
      ++said;
      last = *text;
    }
  }
  EXPECT_EQ(said, 3);
  EXPECT_EQ(last, "1000 more refusals of 10.0.0.1 within an hour were left out: only their count is told");
  EXPECT_THAT(refusals.Note("10.0.0.1", "bad token", now + 1h), Optional<std::string>("bad token"));
}

TEST(Refusals, OtherWordsEachTimeFillNothingAndHideNobodyElse) {
  Refusals refusals(50);
  const Instant now{};
  int said = 0;
  for (int i = 0; i < 10'000; ++i)
    said += refusals.Note("10.0.0.1", "node " + std::to_string(i), now) ? 1 : 0;
  EXPECT_LE(said, 14);
  EXPECT_TRUE(refusals.Note("10.0.0.2", "bad token", now));
}

TEST(Refusals, WhatIsTheSameIsSaidOnceThoughItsWordsDiffer) {
  Refusals refusals(50);
  const Instant now{};
  EXPECT_TRUE(refusals.Note("10.0.0.1", "its clock says 12:00", now, "its clock"));
  EXPECT_FALSE(refusals.Note("10.0.0.1", "its clock says 12:01", now, "its clock"));
  EXPECT_TRUE(refusals.Note("10.0.0.1", "its clock says 12:01", now));
}

TEST(Refusals, ManyPeersAreOneInTheEnd) {
  Refusals refusals(50);
  const Instant now{};
  int said = 0;
  for (int i = 0; i < 10'000; ++i) said += refusals.Note(std::to_string(i), "bad token", now) ? 1 : 0;
  EXPECT_LE(said, 60);
}

}  // namespace
}  // namespace imgd
