#include "common/sweep_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace imgd {
namespace {

/// SplitMix64's finaliser.
uint64_t Mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// From 0 to below 1.
double Draw(uint64_t seed, uint64_t member, uint64_t parameter) {
  return static_cast<double>(Mixed(Mixed(Mixed(seed) ^ member) ^ parameter) >> 11) * 0x1p-53;
}

std::string DrawnValue(const SweepSpec::Parameter& parameter, double drawn) {
  using Kind = SweepSpec::Parameter::Kind;
  switch (parameter.kind) {
    case Kind::kChoice:
      return parameter.choice[static_cast<size_t>(drawn * static_cast<double>(parameter.choice.size()))];
    case Kind::kUniform:
      return fmt::format("{:.6g}", parameter.low + drawn * (parameter.high - parameter.low));
    case Kind::kLogUniform:
      return fmt::format(
          "{:.6g}", std::exp(std::log(parameter.low) + drawn * std::log(parameter.high / parameter.low)));
    case Kind::kIntUniform:
      return fmt::format("{:.0f}", std::floor(parameter.low + drawn * (parameter.high - parameter.low + 1)));
  }
  return "";
}

std::vector<SweepValue> GridPoint(const std::vector<SweepSpec::Parameter>& grid, uint64_t number) {
  std::vector<SweepValue> values(grid.size());
  for (size_t i = grid.size(); i-- > 0;) {
    const auto& choice = grid[i].choice;
    values[i] = {grid[i].name, choice[number % choice.size()]};
    number /= choice.size();
  }
  return values;
}

std::vector<SweepValue> DrawnPoint(const SweepSpec& sweep, uint64_t number) {
  std::vector<SweepValue> values;
  for (size_t i = 0; i < sweep.random.size(); ++i) {
    values.push_back({sweep.random[i].name, DrawnValue(sweep.random[i], Draw(sweep.seed, number, i))});
  }
  return values;
}

}  // namespace

uint64_t SweepSpec::Members() const {
  if (!list.empty()) return list.size();
  if (!random.empty()) return draws;
  uint64_t members = grid.empty() ? 0 : 1;
  for (const auto& parameter : grid)
    members = std::min(members * parameter.choice.size(), kMostSweepMembers + 1);
  return members;
}

std::vector<std::vector<SweepValue>> ExpandSweep(const SweepSpec& sweep) {
  if (!sweep.list.empty()) return sweep.list;
  std::vector<std::vector<SweepValue>> out;
  const uint64_t members = sweep.Members();
  for (uint64_t i = 0; i < members; ++i)
    out.push_back(sweep.random.empty() ? GridPoint(sweep.grid, i) : DrawnPoint(sweep, i));
  return out;
}

std::string SweepText(const std::vector<SweepValue>& values) {
  std::string text;
  for (const auto& [name, value] : values)
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name, value);
  return text;
}

}  // namespace imgd
