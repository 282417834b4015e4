#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"

/// Sweeps: jobs that were made of one file, and the rule by which the worst of them are stopped.
namespace imgd {

/// A figure of validation.
enum class SweepMetric : uint8_t { kTop1 = 1, kTop5 = 2, kLoss = 3 };

/// What validation found after an epoch.
struct EpochFigures {
  uint32_t epoch = 0;
  double top1 = 0;
  double top5 = 0;
  double loss = 0;
  double Of(SweepMetric metric) const;
};

/// Successive halving (Jamieson and Talwalkar 2016): of N members only the best N / factor go on after the
/// first rung, the best N / factor^2 after the second, and so on; never less than one.
struct Halving {
  SweepMetric metric = SweepMetric::kTop1;
  bool max = true;              ///< more is better
  uint32_t factor = 3;          ///< 2 or more
  std::vector<uint32_t> rungs;  ///< epochs, rising
  bool operator==(const Halving&) const = default;

  /// How many of so many members go on after the rung, numbered from 0.
  uint32_t Kept(uint32_t members, size_t rung) const;
};

/// What members had at a rung when they reached it.
using RungResults = std::map<JobId, double>;

/// Jobs that were made of one file.
struct SweepRecord {
  JobId id;  ///< of its first member; the others have the numbers that follow
  std::string name;
  std::string owner;
  uint32_t members = 0;
  uint32_t max_running = 0;  ///< so many of them at once; 0: any number
  std::optional<Halving> halving;
  WallTime submitted;
  std::vector<RungResults> rungs;  ///< as many as the halving has

  JobId Member(uint32_t index) const { return JobId(id.value() + index); }
  bool Has(JobId job) const { return job >= id && job < Member(members); }
};

/// A member that is not among those who go on after a rung.
struct Dropped {
  JobId job;
  size_t rung;
  bool operator==(const Dropped&) const = default;
};

/// The members that surely don't go on after a rung, whatever the others have yet to show: as many as do were
/// better there, and are sure to have passed the rungs before it. What is no number is worse than any; of
/// equals the earlier member is better. `may_come(job)`: it has not ended, so it may reach more rungs. The
/// sweep has a halving. Pure; a member that is in the answer stays in it whatever results come, so that the
/// order in which members reach a rung does not matter for who is left in the end, and nobody waits for the
/// others. Cost: O(members * log members) for each rung.
std::vector<Dropped> OutOf(const SweepRecord& sweep, const std::function<bool(JobId)>& may_come);

/// "top1" and so on.
std::string_view NameOf(SweepMetric metric);

/// "61.2 %", or a loss as "1.234".
std::string FigureText(SweepMetric metric, double value);

/// "sweep 17 (rn18)".
std::string SweepText(const SweepRecord& sweep);

/// "stopped at epoch 5: top1 61.2 % is not among the best 3 of the 9 of sweep 17 (rn18)".
std::string ExplainHalved(const SweepRecord& sweep, size_t rung, double value);

}  // namespace imgd
