#pragma once

#include <string>
#include <string_view>

namespace imgd {

/// Without the blanks at both ends.
inline std::string_view Trimmed(std::string_view text, std::string_view blanks = " \t\r") {
  const size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// ASCII's capitals made small.
inline std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return lower;
}

}  // namespace imgd
