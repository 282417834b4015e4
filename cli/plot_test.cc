#include "cli/plot.h"

#include <gmock/gmock.h>

#include <cmath>

namespace imgd::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

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
  // .....##.........
  // ....####........
  // ....#..##......#
  // ...##...##...###
  // ..##.....#####..
  // ..#.......##....
  // .##.............
  // ##..............
  EXPECT_EQ(Plot({0, 3, 1, 2}, 16, 2, /*utf8=*/true),
            "     3 │⠀⢀⡞⠳⣄⠀⢀⣠\n"
            "     0 │⣠⠏⠀⠀⠈⠛⠉⠀\n");
}

std::vector<CurvePoint> PointsOf(const std::vector<double>& values) {
  std::vector<CurvePoint> points;
  for (const double v : values)
    points.push_back({.x = static_cast<double>(points.size()), .min = v, .max = v, .last = v});
  return points;
}

TEST(Curve, BeginsAt0UnlessThatLeavesMostOfTheRoomEmpty) {
  EXPECT_THAT(Curve(PointsOf({1, 2, 4}), 16, 4, false), ElementsAre("     4 |      **",  //
                                                                    "       |  ***** ",  //
                                                                    "       |***     ",  //
                                                                    "     0 |        "));
  EXPECT_THAT(Curve(PointsOf({90, 92, 93}), 16, 4, false), ElementsAre("    93 |      **",  //
                                                                       "       |   **** ",  //
                                                                       "       | ***    ",  //
                                                                       "    90 |**      "));
  EXPECT_THAT(Curve(PointsOf({-1, 1}), 16, 2, false), ElementsAre("     1 |    ****",  //
                                                                  "    -1 |*****   "));
}

TEST(Curve, KeepsPeaksWithinAPointAndGapsWhereThereIsNoNumber) {
  auto points = PointsOf({1, 1, 1});
  points[1].max = 3;
  EXPECT_THAT(Curve(points, 16, 3, false), ElementsAre("     3 |    *   ",  //
                                                       "       |********",  //
                                                       "     0 |        "));
  points = PointsOf({1, 1, NAN, 1, 1});
  EXPECT_THAT(Curve(points, 17, 1, false), ElementsAre("     1 |***   ***"));
  EXPECT_THAT(Curve(PointsOf({NAN}), 16, 3, false), IsEmpty());
  EXPECT_THAT(Curve({}, 16, 3, false), IsEmpty());
}

TEST(Curve, OnePointIsAMarkAndAConstantALineAcross) {
  EXPECT_THAT(Curve(PointsOf({2}), 16, 3, false), ElementsAre("       |        ",  //
                                                              "     2 |*       ",  //
                                                              "       |        "));
  const auto mark = Curve(PointsOf({2}), 16, 3, true);
  ASSERT_EQ(mark.size(), 3U);
  EXPECT_EQ(mark[1], "     2 │⣿⠀⠀⠀⠀⠀⠀⠀");
  EXPECT_THAT(Curve(PointsOf({2, 2, 2}), 16, 3, false), ElementsAre("       |        ",  //
                                                                    "     2 |********",  //
                                                                    "       |        "));
  EXPECT_THAT(Curve(PointsOf({0, 0}), 16, 2, false), ElementsAre("     0 |********",  //
                                                                 "       |        "));
}

TEST(Curve, PointsStandWhereTheirXIs) {
  const std::vector<CurvePoint> points = {{0, 0, 0, 0}, {1, 2, 2, 2}, {8, 2, 2, 2}};
  EXPECT_THAT(Curve(points, 17, 2, false), ElementsAre("     2 | ********",  //
                                                       "     0 |**       "));
}

TEST(Curve, WhereXGoesBackThePointsBeginAnew) {
  const std::vector<CurvePoint> points = {{4, 2, 2, 2}, {7, 2, 2, 2}, {0, 0, 0, 0}, {3, 0, 0, 0}};
  EXPECT_THAT(Curve(points, 16, 2, false), ElementsAre("     2 |    ****",  //
                                                       "     0 |****    "));
}

TEST(Spark, IsALineFromTheLeastToTheGreatest) {
  EXPECT_EQ(Spark({4, 3, 2, 1}, 8, false), "'''--.._");
  EXPECT_EQ(Spark({5, 5}, 4, false), "----") << "in the middle";
  EXPECT_EQ(Spark({1, NAN, 2}, 3, false), "_ '");
  EXPECT_EQ(Spark({0, 3}, 1, true), "⣸") << "two columns of four dots in a character";
  EXPECT_EQ(Spark({}, 4, true), "");
}

}  // namespace
}  // namespace imgd::cli
