#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "server/core/scheduler.h"
#include "server/core/types.h"

namespace imgd {

/// All that the core remembers: live jobs, some that ended lately, and nodes. A small transaction: what was
/// changed since the last Commit() is known, and Rollback() undoes it. One owner thread.
class ClusterState {
 public:
  /// Takes what was stored; nothing else may have been called before.
  void Restore(std::vector<JobRecord> jobs, std::vector<NodeRecord> nodes);

  const JobRecord* FindJob(JobId id) const;
  const NodeRecord* FindNode(const NodeId& id) const;
  const std::map<NodeId, NodeRecord>& nodes() const { return nodes_; }
  /// Jobs that hold devices.
  const std::set<JobId>& active() const { return active_; }
  const std::vector<QueuedJob>& queue() const { return queue_; }

  void AddJob(JobRecord job);
  void AddNode(NodeRecord node);
  /// The job, to be changed; call Changed() when done. It must exist.
  JobRecord& EditJob(JobId id);
  NodeRecord& EditNode(const NodeId& id);
  /// The same for what is not stored: such changes neither count as touched nor are rolled back.
  NodeRecord& EditUnstored(const NodeId& id) { return nodes_.at(id); }
  /// Brings the queue, the active set and the devices' holders in line with the job's state.
  void Changed(JobId id);
  /// Notes in the queue why the job waits.
  void SetWait(JobId id, ReasonCode code);

  /// Changed since the last Commit(), in order of ids.
  std::vector<JobId> TouchedJobs() const;
  std::vector<NodeId> TouchedNodes() const;
  void Commit();
  void Rollback();

  /// Jobs that ended are kept until so many others have, for their late reports.
  static constexpr size_t kEndedKept = 256;

 private:
  void Enqueue(const JobRecord& job);
  void Dequeue(JobId id);
  void Hold(const JobRecord& job);
  void Release(JobId id);
  void Rebuild();

  std::map<JobId, JobRecord> jobs_;
  std::map<NodeId, NodeRecord> nodes_;
  std::set<JobId> active_;
  std::vector<QueuedJob> queue_;
  std::map<JobId, int> queued_;  ///< priority under which the job stands in the queue
  std::deque<JobId> ended_;
  std::map<JobId, std::optional<JobRecord>> old_jobs_;  ///< as they were; nothing where they were not
  std::map<NodeId, std::optional<NodeRecord>> old_nodes_;
};

}  // namespace imgd
