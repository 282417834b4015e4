#pragma once

#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace imgd {

/// The whole number that `json` holds; nothing for other values and for what T cannot hold. The library's own
/// get<T>() converts any number, without a check: 4e64 would be undefined behaviour.
template <std::integral T>
std::optional<T> WholeNumber(const nlohmann::json& json) {
  if (json.is_number_unsigned()) {
    const auto value = json.get<uint64_t>();
    if (value > static_cast<uint64_t>(std::numeric_limits<T>::max())) return std::nullopt;
    return static_cast<T>(value);
  }
  if (!json.is_number_integer()) return std::nullopt;
  const auto value = json.get<int64_t>();
  if constexpr (std::unsigned_integral<T>) {
    return std::nullopt;  // what is not negative is held as unsigned
  } else {
    if (value < std::numeric_limits<T>::min()) return std::nullopt;
    return static_cast<T>(value);
  }
}

}  // namespace imgd
