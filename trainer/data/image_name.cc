#include "trainer/data/image_name.h"

#include <algorithm>
#include <array>

#include "common/text.h"

namespace imgd::data {

bool IsImageEnding(std::string_view ending) {
  constexpr size_t kLongest = 4;
  if (ending.size() > kLongest) return false;
  const std::string lower = Lower(ending);
  return lower == "jpg" || lower == "jpeg" || lower == "png";
}

bool IsUnreadImageEnding(std::string_view ending) {
  static constexpr std::array<std::string_view, 10> kEndings = {"avif", "bmp", "gif", "heic", "jp2",
                                                                "pgm",  "ppm", "tif", "tiff", "webp"};
  constexpr size_t kLongest = 4;
  return ending.size() <= kLongest && std::ranges::find(kEndings, Lower(ending)) != kEndings.end();
}

bool HasImageEnding(std::string_view name) { return WithoutImageEnding(name).size() < name.size(); }

std::string_view WithoutImageEnding(std::string_view name) {
  const size_t dot = name.rfind('.');
  const size_t base = name.rfind('/') + 1;  // npos + 1 is 0
  if (dot == std::string_view::npos || dot <= base || !IsImageEnding(name.substr(dot + 1))) return name;
  return name.substr(0, dot);
}

std::string WithImageEnding(std::string_view name) {
  return std::string(name) + (HasImageEnding(name) ? "" : ".JPEG");
}

}  // namespace imgd::data
