#include "trainer/report/picture.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>

#include "trainer/report/font.h"

namespace imgd::report {
namespace {

constexpr int kColumns = 4;
constexpr int kGap = 6;
constexpr int kLineHeight = 10;
constexpr int kLeastTile = 128;  ///< small images are shown larger, so that the words below have room
constexpr int kMatrixSide = 512;

constexpr Colour kBlack = {0, 0, 0};
constexpr Colour kGreen = {0, 120, 40};
constexpr Colour kRed = {190, 20, 20};

std::string Fitting(const std::string& text, int pixels) {
  return text.substr(0, static_cast<size_t>(pixels / Picture::kTextPitch));
}

void DrawImage(const Sample& sample, int size, int scale, int left, int top, Picture& picture) {
  for (int y = 0; y < size; ++y) {
    for (int x = 0; x < size; ++x) {
      const uint8_t* at = sample.rgb.data() + static_cast<size_t>(y * size + x) * 3;
      picture.Fill(left + x * scale, top + y * scale, scale, scale, {at[0], at[1], at[2]});
    }
  }
}

}  // namespace

void Picture::Set(int x, int y, Colour colour) {
  if (x < 0 || y < 0 || x >= width || y >= height) return;
  std::copy(colour.begin(), colour.end(), rgb.begin() + (static_cast<ptrdiff_t>(y) * width + x) * 3);
}

void Picture::Fill(int x, int y, int wide, int high, Colour colour) {
  for (int row = y; row < y + high; ++row) {
    for (int column = x; column < x + wide; ++column) Set(column, row, colour);
  }
}

void Picture::Text(int x, int y, std::string_view text, Colour colour) {
  for (const char c : text) {
    const Glyph& glyph = GlyphOf(c);
    for (int row = 0; row < 7; ++row) {
      for (int column = 0; column < 5; ++column) {
        if ((glyph[static_cast<size_t>(row)] >> (4 - column) & 1) != 0) Set(x + column, y + row, colour);
      }
    }
    x += kTextPitch;
  }
}

Picture Draw(const SampleFigures& figures) {
  const int count = static_cast<int>(figures.samples.size());
  const int scale = std::max(1, (kLeastTile + figures.size - 1) / std::max(figures.size, 1));
  const int tile = figures.size * scale;
  const int columns = std::clamp(count, 1, kColumns);
  const int rows = std::max((count + kColumns - 1) / kColumns, 1);
  const int row_height = tile + 2 * kLineHeight + kGap;
  Picture picture(columns * (tile + kGap), rows * row_height);
  for (int i = 0; i < count; ++i) {
    const Sample& sample = figures.samples[static_cast<size_t>(i)];
    const int left = i % kColumns * (tile + kGap);
    const int top = i / kColumns * row_height;
    DrawImage(sample, figures.size, scale, left, top, picture);
    picture.Text(left, top + tile + 2, Fitting(sample.label, tile), kBlack);
    picture.Text(left, top + tile + 2 + kLineHeight, Fitting(sample.answer, tile),
                 sample.right ? kGreen : kRed);
  }
  return picture;
}

Picture DrawConfusion(const ClassFigures& figures) {
  const int classes = static_cast<int>(figures.names.size());
  const int side = std::max(1, kMatrixSide / std::max(classes, 1));
  Picture picture(classes * side, classes * side);
  for (int label = 0; label < classes; ++label) {
    const auto row = static_cast<size_t>(label);
    const double images = static_cast<double>(figures.counts[row].images);
    for (int answer = 0; answer < classes; ++answer) {
      const uint32_t count = figures.at(row, static_cast<size_t>(answer));
      if (count == 0) continue;
      // The root, since a share of a few percent should be seen too.
      const double share = std::sqrt(count / images);
      const auto shade = [share](int dark) { return static_cast<uint8_t>(255 - share * (255 - dark)); };
      picture.Fill(answer * side, label * side, side, side, {shade(8), shade(32), shade(96)});
    }
  }
  return picture;
}

}  // namespace imgd::report
