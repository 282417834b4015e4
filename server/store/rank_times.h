#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "server/store/database.h"

/// Where each rank's time went, coarsely, over a whole run: what shows a straggler. However long a run is, it
/// is a bounded number of stretches of steps, each twice as long when there are too many.
namespace imgd {

/// What a rank did in a stretch; sums.
struct RankCell {
  double own_seconds = 0;   ///< input, forward, backward, optimiser
  double wait_seconds = 0;  ///< for other ranks
  double steps = 0;
  bool operator==(const RankCell&) const = default;
};

/// A stretch of one start.
struct RankStretch {
  Generation generation;
  uint64_t first_step = 0;  ///< from 1
  uint64_t steps = 1;       ///< that it is long
  std::vector<RankCell> ranks;
  bool operator==(const RankStretch&) const = default;
};

/// The stretches of a job that runs. Not thread-safe.
class RankTimes {
 public:
  explicit RankTimes(const std::vector<RankStretch>& stored = {});

  /// A report of `did.steps` steps that ends with number `step`. Goes to the stretch of its end.
  void Add(Generation generation, uint32_t rank, uint64_t step, const RankCell& did);
  /// By start and step.
  std::vector<RankStretch> Stretches() const;
  /// Those that have changed since the last call. `all`: those of before are of no use any more.
  struct Changes {
    bool all = false;
    std::vector<RankStretch> stretches;
  };
  Changes TakeChanges();

 private:
  using Place = std::pair<Generation, uint64_t>;  ///< start, and which stretch of it
  size_t Most() const;
  void Shorten();
  RankStretch At(const Place& place) const;

  uint64_t width_ = 1;  ///< steps of a stretch
  std::map<Place, std::vector<RankCell>> cells_;
  size_t ranks_ = 0;
  std::set<Place> changed_;
  bool all_changed_ = false;
};

/// Throws SQLite::Exception.
void SaveRankTimes(Database& database, JobId job, const RankTimes::Changes& changes);
std::vector<RankStretch> LoadRankTimes(Database& database, JobId job);

/// Without what a later start did again.
std::vector<RankStretch> WithoutRepeats(std::vector<RankStretch> stretches);

}  // namespace imgd
