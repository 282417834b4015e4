#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/output.h"

namespace imgd::cli {

/// A line of a picture: cells that stand next to each other, with no gap between.
using FrameLine = std::vector<Cell>;
/// A picture, from the top.
using Frame = std::vector<FrameLine>;

/// What a picture is drawn for.
struct Look {
  int width = 80;   ///< columns
  int height = 24;  ///< lines; 0: as many as it takes
  bool utf8 = true;
};

/// Columns that the line takes.
int WidthOf(const FrameLine& line);

/// The line cut to `width` columns.
FrameLine Fitted(const FrameLine& line, int width, bool utf8);

/// `text` in exactly `width` columns: cut, or with spaces at the right (`right`: at the left).
std::string Padded(std::string_view text, int width, bool utf8, bool right = false);

/// `text` on lines of `width` columns, broken between words; a word that is longer has a line to itself. At
/// most `most` lines: the last one has what is left.
std::vector<std::string> Wrapped(std::string_view text, int width, size_t most = SIZE_MAX);

/// The two beside each other; the left one gets `width` columns.
Frame SideBySide(const Frame& left, int width, const Frame& right, bool utf8);

/// The picture without styles, each line with its end and without spaces there.
std::string PlainText(const Frame& frame);

/// What it takes to change a terminal's screen from one picture to the next: lines that differ are written
/// anew.
class FramePainter {
 public:
  explicit FramePainter(bool color) : color_(color) {}

  /// The bytes to write. No line is as wide as the terminal: some wrap when the last column is written.
  std::string Paint(const Frame& frame, const Look& look);

  /// Somebody else wrote to the screen, or it has another size now: the next picture is written in full.
  void Forget() { lines_.clear(); }

 private:
  const bool color_;
  std::vector<std::string> lines_;  ///< on the screen, with their styles
};

}  // namespace imgd::cli
