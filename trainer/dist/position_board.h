#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "trainer/torch.h"
//
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace imgd::trainer {

/// Where each rank is, kept in the rendezvous store, so that after a time-out one can say which rank is late
/// and at what. A thread publishes this rank's place when it has changed, every few seconds.
class PositionBoard {
 public:
  /// `store` must be a connection of the board's own.
  PositionBoard(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size);
  ~PositionBoard();

  /// Any thread; cheap.
  void Set(uint64_t step, const char* what);

  /// "step 12, gradient all-reduce".
  std::string Here() const;

  /// The ranks that have come least far, in words; empty when the store does not answer.
  std::string Laggards();

 private:
  void Publish();

  c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int world_size_;
  mutable std::mutex mutex_;  ///< guards the four below
  std::condition_variable changed_;
  uint64_t step_ = 0;
  const char* what_ = "joining the gang";
  bool stop_ = false;
  std::mutex store_mutex_;  ///< for store_
  std::thread thread_;
};

}  // namespace imgd::trainer
