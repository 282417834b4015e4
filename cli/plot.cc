#include "cli/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace imgd::cli {
namespace {

constexpr int kAxisWidth = 8;  ///< "   3.76 " and a line

/// Dots on a grid; a character shows `across` by `down` of them.
class Dots {
 public:
  Dots(int columns, int lines, bool utf8)
      : across_(utf8 ? 2 : 1),
        down_(utf8 ? 4 : 1),
        width_(columns * across_),
        height_(lines * down_),
        utf8_(utf8) {
    on_.resize(static_cast<size_t>(width_) * static_cast<size_t>(height_));
  }
  int width() const { return width_; }
  int height() const { return height_; }

  /// `y` from the bottom.
  void Set(int x, int y) { on_[Index(x, height_ - 1 - y)] = true; }

  std::string Line(int line) const {
    std::string out;
    for (int x = 0; x < width_; x += across_) out += utf8_ ? Braille(x, line * down_) : Plain(x, line);
    return out;
  }

 private:
  size_t Index(int x, int row) const {
    return static_cast<size_t>(row) * static_cast<size_t>(width_) + static_cast<size_t>(x);
  }
  std::string Plain(int x, int row) const { return on_[Index(x, row)] ? "*" : " "; }

  /// Unicode's Braille patterns: U+2800 and a bit for each of eight dots.
  std::string Braille(int x, int row) const {
    static constexpr int kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    int bits = 0;
    for (int dy = 0; dy < 4; ++dy) {
      for (int dx = 0; dx < 2; ++dx) bits |= on_[Index(x + dx, row + dy)] ? kBits[dy][dx] : 0;
    }
    const int code = 0x2800 + bits;
    return {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 63)),
            static_cast<char>(0x80 | (code & 63))};
  }

  int across_, down_, width_, height_;
  bool utf8_;
  std::vector<bool> on_;
};

}  // namespace

std::string Plot(const std::vector<double>& values, int width, int height, bool utf8) {
  if (values.empty()) return "";
  Dots dots(std::max(width - kAxisWidth, 8), height, utf8);
  const double most = *std::max_element(values.begin(), values.end());
  const auto level = [&](double value) {
    return most > 0 ? static_cast<int>(std::lround(value / most * (dots.height() - 1))) : 0;
  };
  int last = 0;
  for (int x = 0; x < dots.width(); ++x) {
    // The value at this place of a line through all of them.
    const double at = dots.width() > 1 ? static_cast<double>(x) * static_cast<double>(values.size() - 1) /
                                             (dots.width() - 1)
                                       : 0;
    const auto before = static_cast<size_t>(at);
    const auto after = std::min(before + 1, values.size() - 1);
    const int y =
        level(values[before] + (values[after] - values[before]) * (at - static_cast<double>(before)));
    const int from = x == 0 ? y : last;
    for (int between = std::min(from, y); between <= std::max(from, y); ++between) dots.Set(x, between);
    last = y;
  }
  std::string out;
  for (int line = 0; line < height; ++line) {
    std::string label;
    if (line == 0 || line == height - 1) label = fmt::format("{:.3g}", line == 0 ? most : 0);
    out += fmt::format("{:>6} {}{}\n", label, utf8 ? "│" : "|", dots.Line(line));
  }
  return out;
}

}  // namespace imgd::cli
