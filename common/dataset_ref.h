#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace imgd {

/// "dataset:imagenet/train" in a job file: a data set by the name that it has with the daemon, and what of
/// it.
struct DatasetRef {
  std::string name;   ///< "imagenet"
  std::string below;  ///< "/train", or empty
};

/// Nothing where the text is an address of its own.
inline std::optional<DatasetRef> ParseDatasetRef(std::string_view text) {
  constexpr std::string_view kScheme = "dataset:";
  if (!text.starts_with(kScheme)) return std::nullopt;
  text.remove_prefix(kScheme.size());
  const size_t slash = text.find('/');
  const std::string_view below = slash == std::string_view::npos ? "" : text.substr(slash);
  return DatasetRef{std::string(text.substr(0, slash)), std::string(below)};
}

/// The other way round: how the set of this name and address is called by whoever means `wanted`. Nothing
/// where that is not in the set.
inline std::optional<std::string> RefTo(const std::string& name, std::string_view address,
                                        std::string_view wanted) {
  while (address.ends_with('/')) address.remove_suffix(1);
  if (!wanted.starts_with(address)) return std::nullopt;
  const std::string_view below = wanted.substr(address.size());
  if (!below.empty() && !below.starts_with('/')) return std::nullopt;
  return "dataset:" + name + std::string(below);
}

constexpr const char* kDatasetNameRule =
    "1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit";

inline bool IsDatasetName(std::string_view name) {
  const auto is_word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > 63 || !is_word(name.front())) return false;
  for (const char c : name) {
    if (!is_word(c) && c != '.' && c != '_' && c != '-') return false;
  }
  return true;
}

}  // namespace imgd
