#include "cli/frame.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/format.h"

namespace imgd::cli {

int WidthOf(const FrameLine& line) {
  int width = 0;
  for (const auto& cell : line) width += DisplayWidth(cell.text);
  return width;
}

FrameLine Fitted(const FrameLine& line, int width, bool utf8) {
  FrameLine out;
  for (const auto& cell : line) {
    if (width <= 0) break;
    std::string text = Truncate(cell.text, width, utf8);
    width -= DisplayWidth(cell.text);
    out.emplace_back(std::move(text), cell.style);
  }
  return out;
}

std::string Padded(std::string_view text, int width, bool utf8, bool right) {
  std::string cut = Truncate(text, width, utf8);
  const std::string spaces(static_cast<size_t>(std::max(0, width - DisplayWidth(cut))), ' ');
  return right ? spaces + cut : cut + spaces;
}

std::vector<std::string> Wrapped(std::string_view text, int width, size_t most) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (lines.empty() ||
        (DisplayWidth(lines.back()) + 1 + DisplayWidth(word) > width && lines.size() < most)) {
      lines.emplace_back(word);
    } else {
      lines.back().append(" ").append(word);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

Frame SideBySide(const Frame& left, int width, const Frame& right, bool utf8) {
  Frame out;
  for (size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    FrameLine line = i < left.size() ? Fitted(left[i], width, utf8) : FrameLine{};
    if (i < right.size()) {
      line.emplace_back(std::string(static_cast<size_t>(std::max(0, width - WidthOf(line))), ' '));
      line.insert(line.end(), right[i].begin(), right[i].end());
    }
    out.push_back(std::move(line));
  }
  return out;
}

std::string PlainText(const Frame& frame) {
  std::string out;
  for (const auto& line : frame) {
    std::string text;
    for (const auto& cell : line) text += cell.text;
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  }
  return out;
}

std::string FramePainter::Paint(const Frame& frame, const Look& look) {
  std::string out;
  std::vector<std::string> lines;
  for (size_t i = 0; i < frame.size() && i < static_cast<size_t>(std::max(look.height, 0)); ++i) {
    std::string text;
    for (const auto& cell : Fitted(frame[i], look.width - 1, look.utf8)) {
      text += cli::Paint(Printable(cell.text), cell.style, color_);
    }
    if (i >= lines_.size() || lines_[i] != text) out += fmt::format("\x1b[{};1H{}\x1b[K", i + 1, text);
    lines.push_back(std::move(text));
  }
  // Not below the last line: a terminal would take that for the last.
  if (lines_.size() > lines.size()) out += fmt::format("\x1b[{};1H\x1b[J", lines.size() + 1);
  if (lines_.empty()) out = "\x1b[2J" + out;
  lines_ = std::move(lines);
  return out;
}

}  // namespace imgd::cli
