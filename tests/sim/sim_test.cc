#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <set>

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

/// Each event and decision of the life, in words and to the microsecond.
std::vector<std::string> TraceOf(uint64_t seed) {
  std::vector<std::string> lines;
  World world(seed, ShapeOf(seed), false);
  world.TraceTo(lines);
  world.Live();
  return lines;
}

TEST(Sim, TheSameSeedLivesTheSameLifeToTheLastWord) {
  std::set<size_t> lives;
  for (const uint64_t seed : {3U, 4U, 5U, 12U, 43U, 111U, 240U, 519U, 1024U, 1999U}) {
    const auto first = TraceOf(seed);
    const auto second = TraceOf(seed);
    ASSERT_GT(first.size(), 50u) << "seed " << seed;
    const auto [one, other] = std::mismatch(first.begin(), first.end(), second.begin(), second.end());
    EXPECT_EQ(one == first.end(), other == second.end()) << "seed " << seed;
    if (one != first.end() && other != second.end())
      ADD_FAILURE() << "seed " << seed << ": " << *one << " / " << *other;
    lives.insert(std::hash<std::string>()(fmt::format("{}", fmt::join(first, "\n"))));
  }
  EXPECT_EQ(lives.size(), 10u) << "other seeds live other lives";
}

}  // namespace
}  // namespace imgd::sim
