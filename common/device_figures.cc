#include "common/device_figures.h"

namespace imgd {

bool WasRead(std::string_view figure, std::string_view error) {
  constexpr std::string_view kUnread = " can't be read";
  constexpr std::string_view kBetween = "; ";
  while (!error.empty()) {
    const size_t end = error.find(kBetween);
    const std::string_view part = error.substr(0, end);
    const size_t at = part.find(kUnread);
    if (at == std::string_view::npos || part.substr(0, at) == figure) return false;
    error.remove_prefix(end == std::string_view::npos ? error.size() : end + kBetween.size());
  }
  return true;
}

}  // namespace imgd
