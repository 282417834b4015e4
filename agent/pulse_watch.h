#pragma once

#include <cstdint>
#include <optional>

#include "agent/run_dir.h"
#include "common/clock.h"
#include "common/pulse.h"

namespace imgd {

/// Looks at one rank's pulse from time to time, and counts for how long it has not changed. A look counts for
/// at most two seconds, so that an agent that was stopped itself, with its whole machine perhaps, holds
/// nothing against the rank. Not thread-safe.
class PulseWatch {
 public:
  struct Seen {
    PulseState state;
    Duration silent{};  ///< since `beats` last changed
    Duration still{};   ///< since `moves` last changed
  };

  /// Nothing while the rank has not written any.
  const std::optional<Seen>& Look(const RunDir& dir, uint32_t local_rank, Instant now);
  /// The same, of what was read; nothing read where the file can't be read just now.
  const std::optional<Seen>& Take(const std::optional<PulseState>& read, Instant now);

 private:
  std::optional<Seen> seen_;
  Instant looked_{};
};

}  // namespace imgd
