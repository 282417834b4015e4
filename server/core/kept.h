#pragma once

#include <optional>
#include <vector>

#include "server/core/scheduler.h"

namespace imgd {

/// What the latest plan keeps for jobs that wait, for those who ask for whom: cheap to ask for many.
class Kept {
 public:
  /// `cluster` must outlive it and stay as it is.
  explicit Kept(const Snapshot& cluster) : cluster_(cluster), examples_(cluster.reserved->size()) {}

  /// How many of those who have something reserved come before the job.
  size_t Before(const QueuedJob& job) const;
  /// What is reserved for one before it on nodes that do for it: first where something is free, else first of
  /// all; null where nothing is.
  const Reservation* From(const QueuedJob& job);

 private:
  /// A node for all of its sort in one reservation on which something is free, or nothing.
  struct Example {
    const NodeSlots* node = nullptr;
    bool free = false;
  };
  const std::vector<Example>& ExamplesOf(size_t reserved);

  const Snapshot& cluster_;
  std::vector<std::optional<std::vector<Example>>> examples_;  ///< of each reservation, once it was asked for
};

}  // namespace imgd
