#include "server/core/types.h"

#include <algorithm>

namespace imgd {

std::string_view NameOf(JobState state) {
  switch (state) {
    case JobState::kQueued:
      return "QUEUED";
    case JobState::kStarting:
      return "STARTING";
    case JobState::kRunning:
      return "RUNNING";
    case JobState::kPreempting:
      return "PREEMPTING";
    case JobState::kPaused:
      return "PAUSED";
    case JobState::kCompleted:
      return "COMPLETED";
    case JobState::kFailed:
      return "FAILED";
    case JobState::kCancelled:
      return "CANCELLED";
  }
  return "UNKNOWN";
}

bool IsFinal(JobState state) {
  return state == JobState::kCompleted || state == JobState::kFailed || state == JobState::kCancelled;
}

bool HoldsDevices(JobState state) {
  return state == JobState::kStarting || state == JobState::kRunning || state == JobState::kPreempting;
}

std::optional<std::string> NodeRecord::ForeignHolder(uint32_t index) const {
  for (const auto& [run, held] : foreign) {
    if (std::find(held.begin(), held.end(), index) != held.end()) return run.cluster;
  }
  return std::nullopt;
}

}  // namespace imgd
