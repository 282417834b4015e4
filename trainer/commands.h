#pragma once

#include <atomic>
#include <cstdint>

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

  /// The loop has begun: what is asked for is done from now on.
  void Listen() { listening_ = true; }
  bool Listening() const { return listening_; }
  void AskForCheckpoint() { asked_ |= kCheckpoint; }
  /// A profile of so many steps; the last one asked for counts.
  void AskForProfile(uint32_t steps) { profile_steps_ = steps; }
  /// 0 for none.
  uint32_t TakeProfile() {
    return profile_steps_.load(std::memory_order_relaxed) == 0 ? 0 : profile_steps_.exchange(0);
  }
  void AskToStop(bool checkpoint_first) { asked_ |= checkpoint_first ? kStop | kSaveAtStop : kStop; }
  Taken Take() {
    const unsigned asked = asked_.exchange(0);
    return {(asked & kCheckpoint) != 0, (asked & kStop) != 0, (asked & kSaveAtStop) != 0};
  }

 private:
  // In one word, so that a stop is never taken without its checkpoint.
  static constexpr unsigned kCheckpoint = 1;
  static constexpr unsigned kStop = 2;
  static constexpr unsigned kSaveAtStop = 4;
  std::atomic<unsigned> asked_ = 0;
  std::atomic<bool> listening_ = false;
  std::atomic<uint32_t> profile_steps_ = 0;
};

}  // namespace imgd::trainer
