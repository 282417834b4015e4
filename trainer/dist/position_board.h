#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "trainer/torch.h"
//
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trainer/pulse.h"

namespace imgd::trainer {

/// Where each rank is, kept in the rendezvous store, so that after a time-out one can say which rank is late
/// and at what. A thread publishes this rank's place when it has changed, every few seconds.
class PositionBoard {
 public:
  /// `store` must be a connection of the board's own; `host` is where this rank runs; `pulse` says where it
  /// is in its work, and must outlive the board.
  PositionBoard(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, std::string host,
                const Pulse& pulse);
  ~PositionBoard();

  /// "step 12, gradient all-reduce".
  std::string Here() const;

  /// The ranks that have begun the fewest collectives, with their hosts, in words. The store may be kept by a
  /// rank that is stopped: then it says, after a few seconds, that the store does not answer.
  std::string Laggards() const;

 private:
  /// Outlives the board where a store that does not answer holds somebody up.
  struct Shared {
    c10::intrusive_ptr<c10d::Store> store;
    int rank;
    int world_size;
    std::mutex mutex;  ///< of the store
    std::string FindLaggards();
  };
  void Publish();

  const std::shared_ptr<Shared> shared_;
  const std::string host_;
  const Pulse& pulse_;
  std::mutex mutex_;  ///< guards stop_
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace imgd::trainer
