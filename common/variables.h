#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace imgd {

/// Letters, digits and '_', no digit first.
inline bool IsVariableName(std::string_view name) {
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && (name.front() < '0' || name.front() > '9') &&
         std::all_of(name.begin(), name.end(), is_word);
}

/// Variables by which imgd tells a process who it is.
inline bool IsOurVariable(std::string_view name) {
  static constexpr std::array<std::string_view, 10> kNames = {
      "RANK",        "WORLD_SIZE",  "LOCAL_RANK",        "LOCAL_WORLD_SIZE",     "GROUP_RANK",
      "MASTER_ADDR", "MASTER_PORT", "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "GROUP_WORLD_SIZE"};
  return name.starts_with("IMGD_") || std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

}  // namespace imgd
