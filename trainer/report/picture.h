#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/report/class_figures.h"

namespace imgd::report {

using Colour = std::array<uint8_t, 3>;  ///< red, green, blue

/// Pixels to draw on: [height, width, 3], RGB, white at first.
struct Picture {
  Picture(int wide, int high)
      : width(wide),
        height(high),
        rgb(static_cast<size_t>(wide) * static_cast<size_t>(high) * 3, uint8_t{255}) {}
  int width;
  int height;
  std::vector<uint8_t> rgb;

  /// What lies outside is left out.
  void Set(int x, int y, Colour colour);
  void Fill(int x, int y, int wide, int high, Colour colour);
  /// Capital letters 5 x 7 pixels large, kTextPitch from one to the next, from (x, y) to the right and down
  /// to y + 6. A character that the font lacks is a full block.
  void Text(int x, int y, std::string_view text, Colour colour);

  static constexpr int kTextPitch = 6;
};

/// One image of a training batch as the model saw it.
struct Sample {
  std::vector<uint8_t> rgb;  ///< [size, size, 3]
  std::string label;         ///< its class, or both where two images are mixed
  std::string answer;        ///< the model's, with its probability
  bool right = false;
};

/// Some images of a training batch.
struct SampleFigures {
  uint64_t step = 0;
  int size = 0;  ///< pixels a side
  std::vector<Sample> samples;
};

/// Four images a row, each over its label (black) and the model's answer (green where it is right, else red).
Picture Draw(const SampleFigures& figures);

/// The confusion matrix: a square a pair of classes, true ones from top to bottom and answers from left to
/// right, by label; white is none of the class's images and dark blue all of them. At most 512 pixels a
/// side, or as many as there are classes. Needs the matrix.
Picture DrawConfusion(const ClassFigures& figures);

}  // namespace imgd::report
