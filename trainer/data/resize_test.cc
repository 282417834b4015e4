#include "trainer/data/resize.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "trainer/data/test_images.h"

namespace imgd::data {
namespace {

// The definition: a separable triangle filter as wide as a pixel of the result (or of the source, if that is
// wider), weights renormalised where the source ends.
std::vector<std::vector<double>> ReferenceWeights(double start, double length, int source, int result) {
  const double scale = length / result;
  const double radius = std::max(1.0, scale);
  std::vector<std::vector<double>> rows;
  for (int i = 0; i < result; ++i) {
    const double center = start + (i + 0.5) * scale;
    std::vector<double> row(static_cast<size_t>(source));
    double sum = 0;
    for (int k = 0; k < source; ++k) {
      row[static_cast<size_t>(k)] = std::max(0.0, 1 - std::abs(k + 0.5 - center) / radius);
      sum += row[static_cast<size_t>(k)];
    }
    for (auto& weight : row) weight /= sum;
    rows.push_back(row);
  }
  return rows;
}

std::vector<uint8_t> Reference(const ImageView& source, const Box& box, int width, int height) {
  const auto across = ReferenceWeights(box.left, box.width, source.width, width);
  const auto down = ReferenceWeights(box.top, box.height, source.height, height);
  std::vector<uint8_t> out;
  for (const auto& row : down) {
    for (const auto& column : across) {
      for (size_t c = 0; c < 3; ++c) {
        double sum = 0;
        for (size_t y = 0; y < row.size(); ++y) {
          if (row[y] == 0) continue;
          for (size_t x = 0; x < column.size(); ++x) {
            sum += row[y] * column[x] * source.row(static_cast<int>(y))[x * 4 + c];
          }
        }
        out.push_back(static_cast<uint8_t>(std::lround(sum)));
      }
    }
  }
  return out;
}

int LargestDifference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  int largest = a.size() == b.size() ? 0 : 255;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

std::vector<uint8_t> Resized(const ImageView& source, const Box& box, int width, int height,
                             bool flip = false) {
  std::vector<uint8_t> out(static_cast<size_t>(width) * static_cast<size_t>(height) * 3);
  Resizer().Resize(source, box, width, height, flip, out.data());
  return out;
}

struct Case {
  int source_width, source_height;
  Box box;
  int width, height;
};

class ResizeOf : public testing::TestWithParam<Case> {};

TEST_P(ResizeOf, AgreesWithTheDefinition) {
  const Case& c = GetParam();
  const auto pixels = Waves(c.source_width, c.source_height, 4);
  const ImageView source{pixels.data(), c.source_width, c.source_height};
  EXPECT_LE(LargestDifference(Resized(source, c.box, c.width, c.height),
                              Reference(source, c.box, c.width, c.height)),
            1);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ResizeOf,
                         testing::Values(Case{40, 30, {0, 0, 40, 30}, 40, 30},        // as it is
                                         Case{97, 61, {0, 0, 97, 61}, 32, 32},        // smaller
                                         Case{13, 17, {0, 0, 13, 17}, 32, 32},        // larger
                                         Case{97, 61, {0, 0, 97, 61}, 120, 20},       // both
                                         Case{97, 61, {10.5, 3.25, 50, 40}, 31, 29},  // part of it
                                         Case{1, 1, {0, 0, 1, 1}, 8, 8},              //
                                         Case{300, 2, {0, 0, 300, 2}, 5, 5},          //
                                         Case{50, 50, {0.4, 0.4, 49.3, 49.3}, 7, 7}));

TEST(Resize, AnImageOfOneColourKeepsIt) {
  const std::vector<uint8_t> white(static_cast<size_t>(71 * 53 * 4), 255);
  EXPECT_THAT(Resized({white.data(), 71, 53}, {0, 0, 71, 53}, 24, 24), testing::Each(255));
}

TEST(Resize, FlipMirrorsLeftAndRight) {
  const auto pixels = Waves(50, 40, 4);
  const ImageView source{pixels.data(), 50, 40};
  const auto plain = Resized(source, {0, 0, 50, 40}, 20, 10);
  const auto flipped = Resized(source, {0, 0, 50, 40}, 20, 10, true);
  for (size_t y = 0; y < 10; ++y) {
    for (size_t x = 0; x < 20; ++x) {
      for (size_t c = 0; c < 3; ++c) {
        ASSERT_EQ(flipped[(y * 20 + x) * 3 + c], plain[(y * 20 + 19 - x) * 3 + c]);
      }
    }
  }
}

TEST(Resize, ScratchMemoryOfALargerImageDoesNotShow) {
  const auto large = Waves(200, 200, 4);
  const auto small = Waves(20, 20, 4, 3);
  std::vector<uint8_t> out(8 * 8 * 3);
  Resizer resizer;
  resizer.Resize({large.data(), 200, 200}, {0, 0, 200, 200}, 8, 8, false, out.data());
  resizer.Resize({small.data(), 20, 20}, {0, 0, 20, 20}, 8, 8, false, out.data());
  EXPECT_EQ(out, Resized({small.data(), 20, 20}, {0, 0, 20, 20}, 8, 8));
}

}  // namespace
}  // namespace imgd::data
