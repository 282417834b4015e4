#pragma once

#include <cstddef>
#include <cstdint>

namespace imgd::data {

/// Pixels that somebody else owns: rows of 4 bytes a pixel, R, G, B and one that nobody reads. Four bytes,
/// because a pixel then is one vector register's lane group.
struct ImageView {
  const uint8_t* data = nullptr;
  int width = 0;
  int height = 0;
  size_t pitch = 0;  ///< bytes from one row to the next; 0: the rows have no gaps
  const uint8_t* row(int y) const {
    return data + static_cast<size_t>(y) * (pitch > 0 ? pitch : static_cast<size_t>(width) * 4);
  }
};

/// A rectangle with edges between pixels: the left edge of pixel 0 is at 0.0, its right one at 1.0.
struct Box {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
};

}  // namespace imgd::data
