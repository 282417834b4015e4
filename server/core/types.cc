#include "server/core/types.h"

#include <algorithm>
#include <tuple>
#include <utility>

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

bool GivesBack(StopFor stop) {
  if (stop == StopFor::kPreempt || stop == StopFor::kGrow || stop == StopFor::kNotice) return true;
  return stop == StopFor::kPause || stop == StopFor::kMove || stop == StopFor::kDrain;
}

bool BacksOff(StopFor stop) {
  return !GivesBack(stop) || stop == StopFor::kPreempt || stop == StopFor::kNotice;
}

bool NodeRecord::IsEmpty() const {
  return Connected() && state == NodeState::kReady && stale.empty() && foreign.empty() &&
         std::all_of(holders.begin(), holders.end(), [](JobId holder) { return holder == JobId(); });
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

std::shared_ptr<const NodeKind> KindOf(std::vector<Device> devices, Labels labels) {
  return NodeKinds().Of(std::move(devices), std::move(labels));
}

bool NodeKinds::Less::operator()(const Kind& a, const Kind& b) const {
  return std::tie(a->labels, a->devices) < std::tie(b->labels, b->devices);
}

std::shared_ptr<const NodeKind> NodeKinds::Of(std::vector<Device> devices, Labels labels) {
  for (auto& device : devices) {
    device.index = 0;
    device.uuid.clear();
  }
  if (known_.size() >= clean_at_) {
    std::erase_if(known_, [](const Kind& kind) { return kind.use_count() == 1; });
    clean_at_ = std::max<size_t>(2 * known_.size(), 64);
  }
  return *known_.insert(std::make_shared<const NodeKind>(devices_.Of(std::move(devices)), std::move(labels)))
              .first;
}

}  // namespace imgd
