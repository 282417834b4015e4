#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <vector>

#include "trainer/torch.h"
//
#include <c10/core/Event.h>

namespace imgd::trainer {

/// What the time of a step goes into.
enum class Part { kInput, kForward, kBackward, kCommunication, kOptimizer };
inline constexpr size_t kParts = 5;

/// Measures the parts of steps: on a GPU by events in the computing stream, which nobody waits for before
/// Take(), else by the clock. Used by one thread at a time.
class StepClock {
 public:
  explicit StepClock(at::Device device) : device_(device) {}

  /// A step begins; the time since the last mark belongs to no part.
  void Start();
  /// The time since the last mark was `part`.
  void Mark(Part part);

  /// Sums over steps.
  struct Times {
    uint32_t steps = 0;
    std::array<double, kParts> of_part{};  ///< seconds
    double seconds(Part part) const { return of_part[static_cast<size_t>(part)]; }
  };
  /// Since the last call; on a GPU waits for the last mark. Not between Start() and the step's last mark.
  Times Take();
  /// Since the clock was made, whatever was taken meanwhile; as Take().
  Times SoFar();

 private:
  using SteadyClock = std::chrono::steady_clock;
  struct Stamp {
    std::optional<Part> part;
    c10::Event event;
  };
  void Record(std::optional<Part> part);
  void Settle();

  const at::Device device_;
  Times times_;
  Times taken_;  ///< by all calls of Take()
  SteadyClock::time_point last_;
  std::vector<Stamp> stamps_;  ///< on a GPU; kept from one Take() to the next
  size_t used_ = 0;            ///< of them
};

}  // namespace imgd::trainer
