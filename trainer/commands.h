#pragma once

#include <atomic>

namespace imgd::trainer {

/// What somebody asked this rank to do after its current step. Set by the control server's thread, taken by
/// the training loop's; thread-safe.
class Commands {
 public:
  /// What was asked since the last Take().
  struct Taken {
    bool checkpoint = false;
    bool stop = false;
    bool stop_with_checkpoint = false;
  };

  void AskForCheckpoint() { checkpoint_ = true; }
  void AskToStop(bool checkpoint_first) {
    if (checkpoint_first) stop_with_checkpoint_ = true;
    stop_ = true;
  }
  Taken Take() {
    Taken taken;
    taken.checkpoint = checkpoint_.exchange(false);
    taken.stop = stop_.exchange(false);
    taken.stop_with_checkpoint = stop_with_checkpoint_.exchange(false);
    return taken;
  }

 private:
  std::atomic<bool> checkpoint_ = false;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> stop_with_checkpoint_ = false;
};

}  // namespace imgd::trainer
