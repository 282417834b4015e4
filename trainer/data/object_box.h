#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace imgd::data {

/// An object in an image, edges as shares of its width and height.
struct ObjectBox {
  float xmin = 0;
  float ymin = 0;
  float xmax = 0;
  float ymax = 0;
  int32_t label = -1;  ///< of its class, from 0; -1: that of the image
  bool operator==(const ObjectBox&) const = default;
};

/// The boxes of the image of a name, as Dataset::name() gives it.
using BoxesOf = std::function<std::vector<ObjectBox>(std::string_view name)>;

}  // namespace imgd::data
