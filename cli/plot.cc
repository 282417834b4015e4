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
  /// From the top; `y` from the bottom.
  int LineOf(int y) const { return (height_ - 1 - y) / down_; }

  /// `y` from the bottom.
  void Set(int x, int y) { on_[Index(x, height_ - 1 - y)] = true; }

  /// A square of dots, as high as a line, about `x` and `y`.
  void Mark(int x, int y) {
    for (int dx = 0; dx < across_; ++dx) {
      const int at = std::min(x + dx, width_ - 1);
      SetColumn(at, std::max(y - down_ / 2, 0), std::min(y + (down_ - 1) / 2, height_ - 1));
    }
  }

  void SetColumn(int x, int from, int to) {
    for (int y = std::min(from, to); y <= std::max(from, to); ++y) Set(x, y);
  }

  /// None where `from_x` is right of `to_x`.
  void SetLine(int from_x, int from_y, int to_x, int to_y) {
    if (from_x == to_x) SetColumn(to_x, from_y, to_y);
    int last = from_y;
    for (int x = from_x + 1; x <= to_x; ++x) {
      const double share = static_cast<double>(x - from_x) / (to_x - from_x);
      const int y = static_cast<int>(std::lround(from_y + share * (to_y - from_y)));
      SetColumn(x, last, y);
      last = y;
    }
  }

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

/// What an axis shows.
struct Scale {
  double least = INFINITY;
  double most = -INFINITY;

  void Take(double value) {
    if (!std::isfinite(value)) return;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  bool empty() const { return least > most; }

  /// Dot of `value` among so many, from the least; the middle where all values are one.
  int Level(double value, int dots) const {
    if (most <= least) return dots / 2;
    const double share = std::clamp((value - least) / (most - least), 0.0, 1.0);
    return static_cast<int>(std::lround(share * (dots - 1)));
  }
};

Scale ScaleOf(const std::vector<CurvePoint>& points) {
  Scale scale;
  for (const auto& point : points) {
    for (const double value : {point.min, point.max, point.last}) scale.Take(value);
  }
  if (scale.least > 0 && scale.least < scale.most / 2) scale.least = 0;
  return scale;
}

bool IsDrawn(const CurvePoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.min) && std::isfinite(point.max) &&
         std::isfinite(point.last);
}

void DrawCurve(const std::vector<CurvePoint>& points, const Scale& scale, Dots& dots) {
  Scale across;
  for (const auto& point : points) across.Take(point.x);
  const auto column = [&](double x) {
    return across.most > across.least ? across.Level(x, dots.width()) : 0;
  };
  if (std::ranges::count_if(points, IsDrawn) == 1) {
    // A single dot would hardly be seen.
    const auto& only = *std::ranges::find_if(points, IsDrawn);
    dots.Mark(column(only.x), scale.Level(only.last, dots.height()));
  }
  const CurvePoint* before = nullptr;
  for (const auto& point : points) {
    if (!IsDrawn(point)) {
      before = nullptr;
      continue;
    }
    const int x = column(point.x);
    dots.SetColumn(x, scale.Level(point.min, dots.height()), scale.Level(point.max, dots.height()));
    const int y = scale.Level(point.last, dots.height());
    if (before != nullptr) dots.SetLine(column(before->x), scale.Level(before->last, dots.height()), x, y);
    before = &point;
  }
}

/// At most 6 columns: "1.96", "0.1773", "1.2e-05", "12345".
std::string AxisLabel(double value) {
  std::string text = fmt::format("{:.3g}", value);
  if (std::abs(value) >= 1000 && std::abs(value) < 1e6) text = fmt::format("{:.0f}", value);
  return text.size() > 6 ? fmt::format("{:.0e}", value) : text;
}

}  // namespace

std::vector<std::string> Curve(const std::vector<CurvePoint>& points, int width, int height, bool utf8) {
  const Scale scale = ScaleOf(points);
  if (scale.empty() || height < 1) return {};
  Dots dots(std::max(width - kAxisWidth, 4), height, utf8);
  DrawCurve(points, scale, dots);
  std::vector<std::string> lines;
  for (int line = 0; line < height; ++line) {
    std::string label;
    // Where all values are one, it stands beside them.
    const int top = scale.most > scale.least ? 0 : dots.LineOf(scale.Level(scale.most, dots.height()));
    if (line == top) label = AxisLabel(scale.most);
    if (line == height - 1 && scale.most > scale.least) label = AxisLabel(scale.least);
    lines.push_back(fmt::format("{:>6} {}{}", label, utf8 ? "│" : "|", dots.Line(line)));
  }
  return lines;
}

std::string Spark(const std::vector<double>& values, int width, bool utf8) {
  constexpr int kLevels = 4;
  Scale scale;
  for (const double value : values) scale.Take(value);
  if (scale.empty() || width < 1) return "";
  Dots dots(width, 1, utf8);
  std::string plain(static_cast<size_t>(width), ' ');
  int last = -1;
  for (int x = 0; x < dots.width(); ++x) {
    const size_t at = dots.width() == 1 ? values.size() - 1
                                        : static_cast<size_t>(x) * (values.size() - 1) /
                                              static_cast<size_t>(dots.width() - 1);
    if (!std::isfinite(values[at])) {
      last = -1;
      continue;
    }
    const int y = scale.Level(values[at], kLevels);
    if (utf8) {
      dots.SetColumn(x, last < 0 ? y : last, y);
    } else {
      plain[static_cast<size_t>(x)] = "_.-'"[y];
    }
    last = y;
  }
  return utf8 ? dots.Line(0) : plain;
}

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
