#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace imgd {

/// Without the blanks at both ends.
inline std::string_view Trimmed(std::string_view text, std::string_view blanks = " \t\r") {
  const size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// What jobs, tokens and weights may be called, in words for people.
inline constexpr std::string_view kNameRule =
    "1 to 63 letters, digits, '.', '_' or '-' are allowed, the first a letter, digit or '_'";

/// Whether they may be called so.
inline bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= 63 && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
         });
}

/// ASCII's capitals made small.
inline std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return lower;
}

}  // namespace imgd
