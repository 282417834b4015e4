#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace imgd {

/// A sweep has no more members.
constexpr uint64_t kMostSweepMembers = 10'000;

/// A setting of one member: "optimizer.lr" and a value as YAML on one line.
struct SweepValue {
  std::string name;
  std::string value;
  bool operator==(const SweepValue&) const = default;
};

/// `halving` of a sweep: stops the worst at some epochs.
struct HalvingSpec {
  std::string metric = "top1";  ///< top1, top5 or loss, of validation
  int factor = 3;               ///< one of so many goes on
  std::vector<int> rungs;       ///< epochs after which that is decided, rising
};

/// `sweep` of a job file: many jobs that differ by some settings.
struct SweepSpec {
  /// A setting and what it may be: one of `choice`, or a number from `low` to `high`.
  struct Parameter {
    enum class Kind : uint8_t { kChoice, kUniform, kLogUniform, kIntUniform };
    std::string name;
    Kind kind = Kind::kChoice;
    std::vector<std::string> choice;
    double low = 0;
    double high = 0;
  };

  std::vector<Parameter> grid;                ///< every combination of the choices
  std::vector<std::vector<SweepValue>> list;  ///< or these
  std::vector<Parameter> random;              ///< or `draws` at random
  uint64_t draws = 0;
  uint64_t seed = 0;    ///< of the draws
  int max_running = 0;  ///< so many at once; 0 for any number
  std::optional<HalvingSpec> halving;

  /// How many members it has; more than kMostSweepMembers where it is too many.
  uint64_t Members() const;
};

/// What each member has of its own. Of a grid the last parameter changes first. A draw depends on the seed,
/// its number and its parameter's alone, so that a sweep with more draws begins with the same ones.
std::vector<std::vector<SweepValue>> ExpandSweep(const SweepSpec& sweep);

/// "optimizer.lr=0.1, seed=2".
std::string SweepText(const std::vector<SweepValue>& values);

}  // namespace imgd
