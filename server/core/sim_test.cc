#include "server/core/testing/sim.h"

#include <gmock/gmock.h>

namespace imgd {
namespace {

using testing::IsEmpty;

TEST(Sim, WhateverHappensTheInvariantsHoldAndJobsComeToAnEnd) {
  uint64_t stale = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
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
