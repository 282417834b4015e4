#include "agent/pulse_watch.h"

#include <algorithm>

namespace imgd {
namespace {
constexpr Duration kMostOfALook = std::chrono::seconds(2);
}  // namespace

const std::optional<PulseWatch::Seen>& PulseWatch::Look(const RunDir& dir, uint32_t local_rank, Instant now) {
  const auto read = ReadPulse(dir.Ranks() / PulseFileName(local_rank));
  return Take(read ? std::optional(*read) : std::nullopt, now);
}

const std::optional<PulseWatch::Seen>& PulseWatch::Take(const std::optional<PulseState>& read, Instant now) {
  const Duration passed = seen_ ? std::min(now - looked_, kMostOfALook) : Duration::zero();
  looked_ = now;
  if (!seen_) {
    if (read) seen_ = Seen{.state = *read};
    return seen_;
  }
  seen_->silent += passed;
  seen_->still += passed;
  if (!read) return seen_;
  if (read->beats != seen_->state.beats) seen_->silent = Duration::zero();
  if (read->moves != seen_->state.moves) seen_->still = Duration::zero();
  seen_->state = *read;
  return seen_;
}

}  // namespace imgd
