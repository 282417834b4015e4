#include "server/core/types.h"

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

}  // namespace imgd
