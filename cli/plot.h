#pragma once

#include <string>
#include <vector>

namespace imgd::cli {

/// A line over `values`, left to right, in at most `width` columns and `height` lines with an axis at the
/// left: Braille dots with `utf8`, else stars. The scale begins at 0. None of `values` may be negative.
std::string Plot(const std::vector<double>& values, int width, int height, bool utf8);

}  // namespace imgd::cli
