#include "server/core/testing/sim.h"

#include <gmock/gmock.h>

#include <cstdlib>

namespace imgd {
namespace {

using testing::IsEmpty;

/// How many lives to try: 300, or what IMGD_CORE_SEEDS says (./run test --full wants more).
uint64_t Seeds() {
  const char* text = std::getenv("IMGD_CORE_SEEDS");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 300;
}

TEST(Sim, WhateverHappensTheInvariantsHoldAndJobsComeToAnEnd) {
  uint64_t stale = 0;
  for (uint64_t seed = 1; seed <= Seeds(); ++seed) {
    Sim sim(seed);
    for (int i = 0; i < 600 && sim.faults().empty(); ++i) sim.Step();
    ASSERT_THAT(sim.faults(), IsEmpty()) << "seed " << seed;
    const bool ended = sim.Heal();
    ASSERT_THAT(sim.faults(), IsEmpty()) << "seed " << seed << " while healing";
    ASSERT_TRUE(ended) << "seed " << seed << "\n" << sim.Summary();
    stale += sim.stale_reports();
  }
  EXPECT_GT(stale, 0u) << "no seed made an old half of a partition report";
}

}  // namespace
}  // namespace imgd
