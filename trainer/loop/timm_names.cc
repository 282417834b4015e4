#include "trainer/loop/timm_names.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace imgd::trainer {
namespace {

using Renaming = std::pair<std::string_view, std::string_view>;

constexpr std::array kOutside = std::to_array<Renaming>(
    {{"stem.", "features.0."}, {"head.norm.", "classifier.0."}, {"head.fc.", "classifier.2."}});
constexpr std::array kInABlock = std::to_array<Renaming>({{"gamma", "layer_scale"},
                                                          {"conv_dw.", "block.0."},
                                                          {"norm.", "block.2."},
                                                          {"mlp.fc1.", "block.3."},
                                                          {"mlp.fc2.", "block.5."}});

std::optional<std::string> Renamed(std::string_view name, std::span<const Renaming> all) {
  for (const auto& [theirs, ours] : all) {
    if (name.starts_with(theirs)) return fmt::format("{}{}", ours, name.substr(theirs.size()));
  }
  return std::nullopt;
}

/// Takes "stages.", "3" and "." off the front; nothing where they are not there.
std::optional<int> TakeNumber(std::string_view& name, std::string_view before) {
  if (!name.starts_with(before)) return std::nullopt;
  int number = 0;
  const char* const begin = name.data() + before.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), number);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return std::nullopt;
  name.remove_prefix(static_cast<size_t>(end + 1 - name.data()));
  return number;
}

}  // namespace

std::string ConvNeXtNameOfTimm(const std::string& name) {
  if (auto outside = Renamed(name, kOutside)) return *outside;
  std::string_view rest = name;
  const auto stage = TakeNumber(rest, "stages.");
  if (!stage) return name;
  // Ours takes turns: the stem or what makes images smaller, and the blocks.
  constexpr std::string_view kSmaller = "downsample.";
  if (rest.starts_with(kSmaller))
    return fmt::format("features.{}.{}", 2 * *stage, rest.substr(kSmaller.size()));
  const auto block = TakeNumber(rest, "blocks.");
  const auto inside = block ? Renamed(rest, kInABlock) : std::nullopt;
  return inside ? fmt::format("features.{}.{}.{}", 2 * *stage + 1, *block, *inside) : name;
}

}  // namespace imgd::trainer
