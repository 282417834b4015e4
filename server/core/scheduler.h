#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "server/core/folders.h"
#include "server/core/types.h"

namespace imgd {

/// A job that waits, as the scheduler sees it. The queue is in this order: higher priority first, then the
/// earlier submission.
struct QueuedJob {
  int priority = 0;
  JobId id;
  uint32_t nodes = 1;
  uint32_t ranks_per_node = 1;
  Instant not_before{};
  std::string folder = {};   ///< that all nodes of the gang must share; empty where it does not matter
  NodeId resumes_with = {};  ///< its nodes must share the folder with this one, where its checkpoints are
  bool keeps_place = false;  ///< until not_before, too: those after it get no device that it needs
  ReasonCode code = ReasonCode::kNone;  ///< why it waits, as last decided

  /// True when this one comes before the other in the queue.
  bool Before(const QueuedJob& other) const {
    return priority != other.priority ? priority > other.priority : id < other.id;
  }
};

/// Stands for the holder of a device that a run of another cluster has.
inline constexpr JobId kForeignHolder{std::numeric_limits<uint64_t>::max()};

/// What a node can take.
struct NodeSlots {
  NodeId id;
  std::vector<uint32_t> devices;  ///< indexes
  std::vector<JobId> holders;     ///< for each of devices; JobId() when free
  bool usable = false;            ///< something may be placed there now
  bool lost = false;
  std::string why_not;  ///< why it takes nothing now; empty when it does
  FolderView view = {};

  uint32_t Free() const;
  /// Makes the job the holder of those of the devices that are free.
  void Take(JobId job, const std::vector<uint32_t>& indexes);
};

/// The cluster at one moment.
struct Snapshot {
  std::vector<NodeSlots> nodes;            ///< by name
  std::map<JobId, std::string> job_names;  ///< of those that hold devices, and of the blocker
  std::set<JobId> retrying;                ///< of those holders: jobs that wait for their next start
};

/// A gang and where it goes.
struct Placement {
  JobId job;
  std::vector<Part> parts;
};

/// A job that waits for another reason than before.
struct WaitChange {
  JobId job;
  ReasonCode code;
};

struct Plan {
  std::vector<Placement> starts;
  std::vector<Placement> kept;    ///< devices that are kept for jobs that wait for their retry
  std::vector<WaitChange> waits;  ///< only where the code differs from the queue's
  JobId blocker;                  ///< the job that the ones after it wait behind; JobId() for none
};

/// Places whole gangs on free devices; never part of one. Goes through the queue in order: a job that waits
/// for devices holds up all that come after it, so nobody is starved; one that no set of known nodes could
/// hold holds up nobody. One that waits for its retry keeps its place: it gets devices before those that come
/// after it, but only starts on them when the wait is over. Where the wait is long it has no place. Pure: the
/// same snapshot, queue and `now` give the same plan, in the same order. Cost: O(jobs + starts * nodes log
/// nodes).
Plan MakePlan(Snapshot cluster, const std::vector<QueuedJob>& queue, Instant now);

/// How many nodes that share its folder could hold `ranks_per_node` ranks of a gang: now, if all jobs ended,
/// and counting lost nodes too.
struct Fit {
  uint32_t free_now = 0;
  uint32_t known = 0;
  uint32_t with_lost = 0;
};
/// `folder` and `resumes_with` as in QueuedJob.
Fit FitOf(const Snapshot& cluster, uint32_t ranks_per_node, const std::string& folder = "",
          const NodeId& resumes_with = NodeId());

}  // namespace imgd
