#include "cli/plot.h"

#include <gtest/gtest.h>

namespace imgd::cli {
namespace {

TEST(Plot, DrawsALineFromValueToValue) {
  EXPECT_EQ(Plot({0, 1, 2, 3}, 16, 4, /*utf8=*/false),
            "     3 |      **\n"
            "       |    *** \n"
            "       |  ***   \n"
            "     0 |***     \n");
}

TEST(Plot, ConstantsAndOneValueAreLinesAtTheTop) {
  const std::string flat = "     2 |********\n     0 |        \n";
  EXPECT_EQ(Plot({2, 2, 2}, 16, 2, false), flat);
  EXPECT_EQ(Plot({2}, 16, 2, false), flat);
  EXPECT_EQ(Plot({}, 16, 2, false), "");
  EXPECT_EQ(Plot({0, 0}, 16, 2, false), "     0 |        \n     0 |********\n");
}

TEST(Plot, HasEightDotsInACharacterWhereTheTerminalCanShowThem) {
  EXPECT_EQ(Plot({0, 1}, 16, 1, /*utf8=*/true).size(), 7 + 3 + 8 * 3 + 1U);
}

}  // namespace
}  // namespace imgd::cli
