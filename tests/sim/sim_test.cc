#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/sim/world.h"

namespace imgd::sim {
namespace {

/// How many lives to try: 2,000, or what IMGD_SIM_SEEDS says.
uint64_t Seeds() {
  const char* text = std::getenv("IMGD_SIM_SEEDS");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 2000;
}

TEST(Sim, NoRuleIsBrokenInAnyLife) {
  for (uint64_t seed = 1; seed <= Seeds(); ++seed) {
    World world(seed, ShapeOf(seed), false);
    for (const auto& finding : world.Live()) {
      FAIL() << "seed " << seed << " breaks \"" << finding.rule << "\": " << finding.text
             << "\nreplay: ./run sim --seed " << seed << " --trace";
    }
  }
}

TEST(Sim, TheSameSeedLivesTheSameLife) {
  for (const uint64_t seed : {3U, 4U, 5U}) {
    World first(seed, ShapeOf(seed), false);
    World second(seed, ShapeOf(seed), false);
    first.Live();
    second.Live();
    EXPECT_EQ(first.time.count(), second.time.count());
    EXPECT_EQ(first.time.passed(), second.time.passed());
    EXPECT_EQ(first.dice.Below(1'000'000), second.dice.Below(1'000'000));
  }
}

}  // namespace
}  // namespace imgd::sim
