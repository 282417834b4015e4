#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "common/error.h"
#include "server/core/types.h"

namespace imgd {

/// What was found of jobs against nodes and quotas that do not change, once for jobs that ask for the same:
/// many are submitted at once that are alike, and there are many nodes to look at. Thread-safe.
class PlaceChecks {
 public:
  /// Its nodes, the most that it may have, ranks on each, its needs, the folder of its checkpoints, and the
  /// accounts that may have too little for it.
  using Asked = std::tuple<uint32_t, uint32_t, uint32_t, Needs, std::string, std::vector<std::string>>;
  struct Found {
    std::vector<std::string> warnings;
    std::optional<Error> refusal;
  };

  /// `look()` says what is not known yet.
  template <typename Look>
  Found Of(const Asked& asked, const Look& look) const {
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = known_.find(asked); known != known_.end()) return known->second;
    }
    Found found = look();
    const std::lock_guard lock(mutex_);
    if (known_.size() >= kMostKnown) known_.clear();
    known_.emplace(asked, found);
    return found;
  }

 private:
  static constexpr size_t kMostKnown = 256;
  mutable std::mutex mutex_;
  mutable std::map<Asked, Found> known_;  ///< guarded by mutex_
};

}  // namespace imgd
