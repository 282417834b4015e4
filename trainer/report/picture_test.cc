#include "trainer/report/picture.h"

#include <gtest/gtest.h>

#include "trainer/data/png.h"

namespace imgd::report {
namespace {

Colour At(const Picture& picture, int x, int y) {
  const size_t at = static_cast<size_t>(y * picture.width + x) * 3;
  return {picture.rgb[at], picture.rgb[at + 1], picture.rgb[at + 2]};
}

constexpr Colour kWhite = {255, 255, 255};
constexpr Colour kBlack = {0, 0, 0};

TEST(Picture, WordsAreDrawnAsLettersAndCutAtTheEdge) {
  Picture picture(9, 7);
  picture.Text(0, 0, "tLx", kBlack);
  std::string shown;
  for (int y = 0; y < 7; ++y) {
    for (int x = 0; x < 9; ++x) shown += At(picture, x, y) == kBlack ? '#' : '.';
    shown += '\n';
  }
  EXPECT_EQ(shown,
            "#####.#..\n"
            "..#...#..\n"
            "..#...#..\n"
            "..#...#..\n"
            "..#...#..\n"
            "..#...#..\n"
            "..#...###\n");
}

TEST(Picture, SamplesStandFourInARowOverTheirWords) {
  SampleFigures figures{.step = 1, .size = 2};
  for (int i = 0; i < 5; ++i) {
    figures.samples.push_back(
        {.rgb = {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4}, .label = "-", .answer = "-", .right = i == 0});
  }
  const Picture picture = Draw(figures);
  // Enlarged to 128 pixels a side, with gaps of 6 and two lines of 10.
  EXPECT_EQ(picture.width, 4 * 134);
  EXPECT_EQ(picture.height, 2 * 154);
  EXPECT_EQ(At(picture, 0, 0), (Colour{1, 1, 1}));
  EXPECT_EQ(At(picture, 127, 63), (Colour{2, 2, 2}));
  EXPECT_EQ(At(picture, 134 + 127, 127), (Colour{4, 4, 4})) << "the second";
  EXPECT_EQ(At(picture, 0, 154), (Colour{1, 1, 1})) << "the fifth, in the next row";
  EXPECT_EQ(At(picture, 0, 133), kBlack) << "its label";
  EXPECT_GT(At(picture, 0, 143)[1], At(picture, 0, 143)[0]) << "a right answer is green";
  EXPECT_GT(At(picture, 134, 143)[0], At(picture, 134, 143)[1]) << "a wrong one is red";
}

TEST(Picture, TheMatrixHasTrueClassesDownAndAnswersAcross) {
  const ClassFigures figures{.names = {"a", "b"}, .counts = {{4}, {4}}, .confusion = {4, 0, 1, 3}};
  const Picture picture = DrawConfusion(figures);
  EXPECT_EQ(picture.width, 512);
  EXPECT_EQ(picture.height, 512);
  const Colour dark = At(picture, 0, 0);
  EXPECT_EQ(At(picture, 255, 255), dark);
  EXPECT_EQ(At(picture, 256, 0), kWhite);
  EXPECT_GT(At(picture, 0, 256)[0], At(picture, 256, 256)[0]) << "one of four is lighter than three of four";
  EXPECT_LT(At(picture, 0, 256)[0], 255);
}

TEST(Picture, APngFileHasTheSamePixels) {
  Picture picture(3, 2);
  picture.Set(1, 1, {9, 8, 7});
  const auto file = data::EncodePng(picture.rgb, picture.width, picture.height);
  ASSERT_TRUE(file.has_value());
  const auto read = data::DecodePng({reinterpret_cast<const uint8_t*>(file->data()), file->size()});
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->width, 3);
  const uint8_t* pixel = read->view().row(1) + 4;
  EXPECT_EQ((Colour{pixel[0], pixel[1], pixel[2]}), (Colour{9, 8, 7}));
}

}  // namespace
}  // namespace imgd::report
