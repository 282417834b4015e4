#include "cli/output.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/format.h"
#include "common/yaml.h"

namespace imgd::cli {
namespace {

constexpr int kGap = 2;        ///< columns between two of the table
constexpr int kNarrowest = 8;  ///< a cut column keeps so many

}  // namespace

Result<OutputFormat> ParseOutputFormat(std::string_view text, const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
    return Fail(ErrorCode::kInvalidArgument, "found '{}'; allowed: {}", text, fmt::join(allowed, ", "));
  }
  if (text == "wide") return OutputFormat::kWide;
  if (text == "json") return OutputFormat::kJson;
  if (text == "yaml") return OutputFormat::kYaml;
  return OutputFormat::kTable;
}

std::string Paint(std::string_view text, Style style, bool color) {
  if (!color || style == Style::kPlain || text.empty()) return std::string(text);
  const char* code = "";
  switch (style) {
    case Style::kPlain:
      break;
    case Style::kDim:
      code = "2";
      break;
    case Style::kBold:
      code = "1";
      break;
    case Style::kGood:
      code = "32";
      break;
    case Style::kBusy:
      code = "36";
      break;
    case Style::kWarn:
      code = "33";
      break;
    case Style::kBad:
      code = "31";
      break;
    case Style::kChosen:
      code = "7";
      break;
  }
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

void Table::Add(std::vector<Cell> row) {
  row.resize(columns_.size(), Cell(""));
  for (auto& cell : row) {
    cell.text = cell.text.empty() ? "-" : Printable(cell.text);
  }
  rows_.push_back(std::move(row));
}

std::vector<int> Table::Widths(int limit) const {
  std::vector<int> widths;
  int total = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    int width = DisplayWidth(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, DisplayWidth(row[i].text));
    widths.push_back(width);
    total += width + (i > 0 ? kGap : 0);
  }
  // The widest of the columns that may shrink gives way first.
  while (limit > 0 && total > limit) {
    int* widest = nullptr;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].shrink && widths[i] > kNarrowest && (widest == nullptr || widths[i] > *widest)) {
        widest = &widths[i];
      }
    }
    if (widest == nullptr) break;
    --*widest;
    --total;
  }
  return widths;
}

void Table::PrintRow(std::ostream& out, const std::vector<Cell>& row, const std::vector<int>& widths,
                     int limit, const Terminal& terminal, int indent) const {
  out << std::string(static_cast<size_t>(indent), ' ');
  int left = limit;
  for (size_t i = 0; i < row.size(); ++i) {
    const bool last = i + 1 == row.size();
    const int gap = i > 0 ? kGap : 0;
    int width = widths[i];
    if (limit > 0) {
      // What does not fit is cut with the line: a wrapped table can't be read.
      if (left <= gap) break;
      width = std::min(width, left - gap);
      left -= gap + width;
    }
    const std::string text = Truncate(row[i].text, width, terminal.utf8);
    const std::string padding(static_cast<size_t>(std::max(0, width - DisplayWidth(text))), ' ');
    out << std::string(static_cast<size_t>(gap), ' ');
    if (columns_[i].right) out << padding;
    out << Paint(text, row[i].style, terminal.color);
    if (!columns_[i].right && !last) out << padding;
  }
  out << '\n';
}

void Table::Print(std::ostream& out, const Terminal& terminal, int indent) const {
  const int width = terminal.Width();
  const int limit = width > 0 ? std::max(1, width - indent) : 0;
  const auto widths = Widths(limit);
  std::vector<Cell> head;
  for (const auto& column : columns_) head.emplace_back(column.title, Style::kDim);
  PrintRow(out, head, widths, limit, terminal, indent);
  for (const auto& row : rows_) PrintRow(out, row, widths, limit, terminal, indent);
}

}  // namespace imgd::cli
