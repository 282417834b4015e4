#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <utility>

namespace imgd::trainer {

/// Where the other ranks are, for a thread of LibTorch's that ends the process and knows nothing of them: as
/// NCCL's watchdog does after a time-out. Thread-safe.
class Whereabouts {
 public:
  /// `late_ranks` names those that are furthest behind; it must stay valid to the process's end.
  void Set(std::function<std::string()> late_ranks) {
    const std::lock_guard lock(mutex_);
    late_ranks_ = std::move(late_ranks);
  }
  /// Empty where nothing is known, as before the ranks have met.
  std::string LateRanks() const {
    const std::lock_guard lock(mutex_);
    return late_ranks_ ? late_ranks_() : "";
  }

 private:
  mutable std::mutex mutex_;  ///< guards late_ranks_
  std::function<std::string()> late_ranks_;
};

}  // namespace imgd::trainer
