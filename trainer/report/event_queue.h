#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "imgd/v1/trainer.pb.h"

namespace imgd::report {

/// Events on their way to imgd, which stores them by number. They get their numbers when they are sent first,
/// so that what is given up of those that wait leaves no gap. Not thread-safe.
///
/// At most about `most` wait. Above that, every second report of training figures in the older half goes
/// first; then other reports, the oldest first; how the run began and ended never.
class EventQueue {
 public:
  explicit EventQueue(size_t most) : most_(most) {}

  /// Texts in it that are longer than imgd takes are cut.
  void Add(v1::TrainerEvent event);

  /// The next ones to be sent, numbered; the same until they are acknowledged. Empty: nothing waits.
  const std::vector<v1::TrainerEvent>& Batch();
  /// imgd has stored all up to this number. Where that is less than it had before (its database is an older
  /// one), what is left of the batch is numbered anew.
  void Acknowledge(uint64_t sequence);
  /// imgd knows nothing of the run any more: what is left is numbered from 1.
  void StartAnew();
  /// imgd can't take something in the batch: only how the run ended stays of it.
  void DropBatch();

  bool empty() const { return batch_.empty() && waiting_.empty(); }
  size_t size() const { return batch_.size() + waiting_.size(); }
  /// Given up so far.
  uint64_t lost() const { return lost_; }

  static constexpr size_t kMostInBatch = 256;
  static constexpr size_t kMostBatchBytes = size_t{512} << 10;

 private:
  void Thin();
  void Number();

  const size_t most_;
  std::deque<v1::TrainerEvent> waiting_;
  std::vector<v1::TrainerEvent> batch_;
  uint64_t acknowledged_ = 0;
  uint64_t lines_ = 0;  ///< notes numbered so far
  uint64_t lost_ = 0;
};

}  // namespace imgd::report
