#include "trainer/report/trial.h"

#include <gtest/gtest.h>

namespace imgd::report {
namespace {

TEST(Trial, TheSlowestLinkCarriesTwiceWhatARankGivesLessItsOwnPart) {
  constexpr uint64_t kBytes = 16 << 20;
  const struct {
    Trial trial;
    double bytes_per_second;
    const char* words;
  } cases[] = {
      {{.bytes = kBytes, .seconds = 0.016777216, .ranks = 2, .nodes = 2},
       1e9,
       "all-reduce of 16 MiB across 2 nodes: 1.00 GB/s"},
      {{.bytes = kBytes, .seconds = 0.016777216, .ranks = 4, .nodes = 1},
       1.5e9,
       "all-reduce of 16 MiB between 4 ranks: 1.50 GB/s"},
      {{.bytes = kBytes, .seconds = 0.016777216, .ranks = 32, .nodes = 4},
       1.9375e9,
       "all-reduce of 16 MiB across 4 nodes: 1.94 GB/s"},
      {{.bytes = kBytes, .seconds = 0, .ranks = 2, .nodes = 2},
       0,
       "all-reduce of 16 MiB across 2 nodes: 0.00 GB/s"},
  };
  for (const auto& c : cases) {
    EXPECT_DOUBLE_EQ(c.trial.BytesPerSecond(), c.bytes_per_second) << c.words;
    EXPECT_EQ(c.trial.ToString(), c.words);
  }
}

}  // namespace
}  // namespace imgd::report
