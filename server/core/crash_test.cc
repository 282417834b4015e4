#include "server/core/crash.h"

#include <gmock/gmock.h>

namespace imgd {
namespace {

using testing::IsEmpty;
using testing::Not;

RankExit At(std::string where, int code, std::string line = "", int signal = 0) {
  return {.exit_code = code, .signal = signal, .last_error_line = std::move(line), .where = std::move(where)};
}

TEST(Crash, WordsWithADigitAreNoPartOfAPlace) {
  EXPECT_EQ(Normalised("[rank3]: ValueError: batch 17 of 0x7f3ac has nan_loss"),
            "[#]: ValueError: batch # of # has nan_loss");
  EXPECT_EQ(Normalised("Tried to allocate 20.00 MiB (GPU 0; 15.78 GiB total)"),
            Normalised("Tried to allocate 3.50 MiB (GPU 7; 79.10 GiB total)"));
  EXPECT_EQ(Normalised(std::string(5000, 'x')).size(), 300u);
}

TEST(Crash, APlaceIsHowItEndedTheStepAndWhatItSaid) {
  const auto here = At("step 57, forward pass (collective 83)", 1, "bad label 7");
  EXPECT_EQ(CrashPlace(here, 0, nullptr), "exit code 1 | step 57, forward pass | bad label #");
  EXPECT_EQ(CrashPlace(here, 0, nullptr),
            CrashPlace(At("step 57, forward pass (collective 3)", 1, "bad label 9"), 0, nullptr))
      << "each start counts its collectives anew";
  const RankFailure said{.message = "the loss is no number"};
  EXPECT_EQ(CrashPlace(here, 0, &said), "exit code 1 | step 57, forward pass | the loss is no number");
  for (const auto& other :
       {At("step 58, forward pass", 1, "bad label 7"), At("step 57, forward pass", 3, "bad label 7"),
        At("step 57, backward pass", 1, "bad label 7"), At("step 57, forward pass", 1, "other")}) {
    EXPECT_NE(CrashPlace(other, 0, nullptr), CrashPlace(here, 0, nullptr));
  }
  EXPECT_THAT(CrashPlace(At("step 57, forward pass", 0, "", 11), 11, nullptr), Not(IsEmpty()));
}

TEST(Crash, WhatSaysNothingOrComesFromOutsideHasNoPlace) {
  EXPECT_THAT(CrashPlace(At("", 1), 0, nullptr), IsEmpty());
  for (const int signal : {1, 2, 9, 15}) {
    EXPECT_THAT(CrashPlace(At("step 57, forward pass", 0, "epoch 3", signal), signal, nullptr), IsEmpty())
        << signal;
  }
}

TEST(Crash, OnlyTheSamePlaceRunningCounts) {
  Crashes crashes = After({}, "here", NodeId("a"));
  crashes = After(crashes, "here", NodeId("b"));
  EXPECT_EQ(crashes, (Crashes{"here", 2, {NodeId("a"), NodeId("b")}}));
  EXPECT_EQ(After(crashes, "there", NodeId("b")).times, 1u);
  EXPECT_EQ(After(crashes, "", NodeId("b")).times, 1u);
  EXPECT_EQ(After(After(crashes, "", {}), "", {}).times, 1u) << "two unknown places are not the same";
  EXPECT_EQ(After(crashes, std::nullopt, NodeId("c")),
            (Crashes{"here", 2, {NodeId("a"), NodeId("b"), NodeId("c")}}));
}

}  // namespace
}  // namespace imgd
