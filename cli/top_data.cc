#include "cli/top_data.h"

#include <algorithm>
#include <tuple>

#include "cli/node_text.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

int GroupOf(const v1::Job& job) {
  switch (job.state()) {
    case v1::JOB_STATE_RUNNING:
    case v1::JOB_STATE_PREEMPTING:
    case v1::JOB_STATE_STARTING:
      return 0;
    case v1::JOB_STATE_QUEUED:
      return 1;
    case v1::JOB_STATE_PAUSED:
      return 2;
    default:
      return 3;
  }
}

/// One that waits for a time or another job has no place in the queue, and comes after those that have.
uint64_t PlaceOf(const v1::Job& job) {
  if (job.state() == v1::JOB_STATE_QUEUED)
    return job.queue_position() > 0 ? job.queue_position() : UINT32_MAX;
  return IsFinal(job.state()) ? UINT64_MAX - job.id() : 0;
}

}  // namespace

void SortForTop(std::vector<v1::Job>& jobs) {
  std::sort(jobs.begin(), jobs.end(), [](const v1::Job& a, const v1::Job& b) {
    return std::tuple(GroupOf(a), PlaceOf(a), a.id()) < std::tuple(GroupOf(b), PlaceOf(b), b.id());
  });
}

TopTotals TotalsOf(const TopData& data) {
  TopTotals totals;
  for (const auto& node : data.nodes) {
    const bool usable = IsUsable(node);
    ++totals.nodes;
    totals.nodes_ready += usable ? 1 : 0;
    for (const auto& device : node.devices()) {
      ++totals.devices;
      if (device.job_id() != 0) {
        ++totals.devices_allocated;
      } else if (usable && device.held_text().empty()) {
        ++totals.devices_free;
      }
    }
  }
  for (const auto& job : data.jobs) {
    totals.running += HoldsNodes(job) ? 1 : 0;
    totals.queued += job.state() == v1::JOB_STATE_QUEUED ? 1 : 0;
    totals.paused += job.state() == v1::JOB_STATE_PAUSED ? 1 : 0;
    if (job.state() == v1::JOB_STATE_RUNNING) totals.images_per_second += job.last_step().images_per_second();
  }
  return totals;
}

}  // namespace imgd::cli
