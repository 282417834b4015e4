#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace imgd::cli {

/// What `-o` asks for.
enum class OutputFormat { kTable, kWide, kJson, kYaml };

/// For programs rather than for people.
constexpr bool IsDocument(OutputFormat format) {
  return format == OutputFormat::kJson || format == OutputFormat::kYaml;
}

/// Errors: kInvalidArgument naming what is allowed.
Result<OutputFormat> ParseOutputFormat(std::string_view text, const std::vector<std::string>& allowed);

/// What the standard output can show.
struct Terminal {
  bool is_terminal = false;      ///< standard output is one; else width and bars don't matter
  bool err_is_terminal = false;  ///< standard error is one
  bool utf8 = false;             ///< the locale's encoding
  std::function<int()> width;    ///< columns now; absent or 0 for no limit
  bool color = false;            ///< escape sequences may go to standard output
  bool err_color = false;        ///< and to standard error

  int Width() const { return is_terminal && width ? width() : 0; }
};

/// How a piece of text stands out where colours are allowed.
enum class Style { kPlain, kDim, kBold, kGood, kBusy, kWarn, kBad, kChosen };

/// `text` in `style`; `text` as it is when `color` is false.
std::string Paint(std::string_view text, Style style, bool color);

/// A column of a table.
struct Column {
  std::string title;
  bool right = false;   ///< numbers stand at the right
  bool shrink = false;  ///< may be cut where the terminal is too narrow
};

/// A cell; empty text is shown as "-".
struct Cell {
  Cell(std::string text, Style style = Style::kPlain) : text(std::move(text)), style(style) {}
  Cell(const char* text) : text(text) {}

  std::string text;
  Style style = Style::kPlain;
};

/// Rows under titles. On a terminal no line is wider than it; elsewhere nothing is cut.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// As many cells as there are columns.
  void Add(std::vector<Cell> row);

  /// `indent` spaces stand before each line.
  void Print(std::ostream& out, const Terminal& terminal, int indent = 0) const;

 private:
  std::vector<int> Widths(int limit) const;
  void PrintRow(std::ostream& out, const std::vector<Cell>& row, const std::vector<int>& widths, int limit,
                const Terminal& terminal, int indent) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace imgd::cli
