#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/planner.h"

namespace imgd::data {

/// A batch that is being made. Workers write to distinct images of it; what they wrote is handed over by the
/// queue's mutex.
struct Slot {
  Plan plan;
  std::vector<uint8_t> pixels;
  std::vector<std::string> errors;          ///< [images]; empty for a good one
  std::vector<std::optional<Crop>> erased;  ///< [images]
  size_t claimed = 0;                       ///< guarded by the queue's mutex, like `open`
  size_t open = 0;                          ///< images not made yet
  size_t image_bytes() const {
    return static_cast<size_t>(plan.width) * static_cast<size_t>(plan.height) * 3;
  }
};

/// The batches of a loader in their order: hands out the work on them, and each when it is done. For any
/// number of working threads and one that takes.
class SlotQueue {
 public:
  struct Limits {
    uint64_t first_step = 0;
    uint64_t end_step = 0;
    size_t prefetch = 1;  ///< batches in the making at once
    size_t workers = 1;
  };

  /// Work of a thread: either an image to make, or a step to lay out for all threads.
  struct Claim {
    Slot* slot = nullptr;
    size_t image = 0;
    std::optional<uint64_t> step_to_plan;
  };

  explicit SlotQueue(const Limits& limits);

  /// The next piece of work, in the order in which it will be wanted; nothing when there is no more. Blocks.
  std::optional<Claim> NextClaim();
  /// Puts in the step that was to be laid out.
  void Opened(std::unique_ptr<Slot> slot);
  /// One image of a slot is made.
  void Done(Slot& slot);

  /// The next batch, complete; null after the last. Blocks. Errors: what Fail() was told.
  Result<std::unique_ptr<Slot>> Take();

  /// Ends all work; Take() answers with this from now on. The first one counts.
  void Fail(const Error& error);

  /// Summed over the threads: for how long they have had nothing to do, up to this moment.
  double IdleSeconds() const;

  /// Memory that was given back, or none.
  std::vector<uint8_t> SpareMemory();
  void GiveBack(std::vector<uint8_t> memory);

 private:
  using Clock = std::chrono::steady_clock;

  size_t Unclaimed() const;
  Clock::duration IdleUntil(Clock::time_point now) const;
  void NoteIdle(int change);

  const Limits limits_;
  mutable std::mutex mutex_;  ///< guards all below
  std::condition_variable work_;
  std::condition_variable ready_;
  std::deque<std::unique_ptr<Slot>> slots_;  ///< of consecutive steps; the first is the next to deliver
  uint64_t next_to_plan_;
  uint64_t next_to_deliver_;
  bool planning_ = false;
  int idle_threads_ = 0;    ///< they wait for work, or there is no more for them
  Clock::duration idle_{};  ///< until idle_since_
  Clock::time_point idle_since_ = Clock::now();
  std::optional<Error> failure_;
  std::vector<std::vector<uint8_t>> spare_;
};

}  // namespace imgd::data
