#pragma once

#include <string>
#include <vector>

namespace imgd::cli {

/// A line over `values`, left to right, in at most `width` columns and `height` lines with an axis at the
/// left: Braille dots with `utf8`, else stars. The scale begins at 0. None of `values` may be negative.
std::string Plot(const std::vector<double>& values, int width, int height, bool utf8);

/// The values of a figure from the point before up to `x`; what is no number is a gap.
struct CurvePoint {
  double x = 0;
  double min = 0;
  double max = 0;
  double last = 0;
};

/// A curve over points from the least `x` to the greatest, drawn as Plot is, of `height` lines with no line
/// end: each value that a point stands for lies on it, so that no peak is lost. Where `x` goes back, as by a
/// clock that was set, points are not joined. The scale begins at 0 unless that would leave most of the room
/// empty. None where there is no number.
std::vector<std::string> Curve(const std::vector<CurvePoint>& points, int width, int height, bool utf8);

/// A line over `values`, left to right, in `width` columns of one line without an axis: from the least to the
/// greatest, in 4 levels. Empty where there is no number.
std::string Spark(const std::vector<double>& values, int width, bool utf8);

}  // namespace imgd::cli
