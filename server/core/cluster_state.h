#pragma once

#include <boost/container/flat_map.hpp>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "server/core/job_queue.h"
#include "server/core/ranking.h"
#include "server/core/scheduler.h"
#include "server/core/shares.h"
#include "server/core/sweep.h"
#include "server/core/types.h"
#include "server/core/waits.h"

namespace imgd {

/// `folder` and `resumes_with` of QueuedJob.
std::string FolderOf(const JobRecord& job);
NodeId NodeWithCheckpoints(const JobRecord& job);

/// The job as the scheduler would see it in the queue, without what Ranking::Rank() adds.
QueuedJob EntryOf(const JobRecord& job);

/// What a job holds.
struct Holding {
  const JobRecord* job = nullptr;
  Shared<AccountNames> accounts = {};  ///< of those that are the same each has one place
  uint32_t devices = 0;                ///< more than its ranks where it has nodes for itself
};
/// By job. Each pass goes through all of them several times: a row in memory, not a tree.
using Holdings = boost::container::flat_map<JobId, Holding>;

/// All that the core remembers: live jobs, some that ended lately, and nodes. A small transaction: what was
/// changed since the last Commit() is known, and Rollback() undoes it. One owner thread.
class ClusterState {
 public:
  /// Takes what was stored; nothing else may have been called before.
  void Restore(std::vector<JobRecord> jobs, std::vector<NodeRecord> nodes,
               std::map<std::string, Usage> usage = {}, std::vector<SweepRecord> sweeps = {},
               std::map<std::string, Account> accounts = {});

  const JobRecord* FindJob(JobId id) const;
  const NodeRecord* FindNode(const NodeId& id) const;
  const std::map<NodeId, NodeRecord>& nodes() const { return nodes_; }
  /// The same, by name; for who goes through all of them often.
  const std::vector<NodeRecord*>& all_nodes() const { return all_nodes_; }
  /// Live ones, and those that ended lately.
  const std::map<JobId, JobRecord>& jobs() const { return jobs_; }
  /// Jobs that hold devices.
  const std::set<JobId>& active() const { return active_; }
  /// The same with what they hold; good until the next change.
  const Holdings& holdings() const { return holdings_; }
  /// Jobs that were started by hand and have not ended.
  const std::set<JobId>& by_hand() const { return by_hand_; }
  /// Jobs that wait and may start when there is room for them: without those that held_back() has.
  const std::vector<QueuedJob>& queue() const { return queue_.InOrder(); }
  const HeldBack& held_back() const { return held_back_; }
  /// Sweeps of which a job has not ended.
  const std::map<JobId, SweepRecord>& sweeps() const { return sweeps_; }
  const SweepRecord* FindSweep(JobId id) const;

  void AddJob(JobRecord job);
  /// Call before its jobs are added.
  void AddSweep(SweepRecord sweep);
  SweepRecord& EditSweep(JobId id);
  void AddNode(NodeRecord node);
  /// Of which no job that holds devices has a part.
  void DropNode(const NodeId& id);
  /// The job, to be changed; call Changed() when done. It must exist.
  JobRecord& EditJob(JobId id);
  NodeRecord& EditNode(const NodeId& id);
  /// Jobs keep what they hold: one that has the node for itself has what was added too.
  void SetDevices(const NodeId& id, const std::vector<Device>& devices);
  /// Call after a change of its devices, labels or folders.
  void NoteKind(NodeRecord& node);
  /// The same for what is not stored: such changes neither count as touched nor are rolled back.
  NodeRecord& EditUnstored(const NodeId& id) { return nodes_.at(id); }
  /// The same; null where there is none.
  NodeRecord* FindUnstored(const NodeId& id) { return const_cast<NodeRecord*>(FindNode(id)); }
  JobRecord& EditUnstored(JobId id) { return jobs_.at(id); }
  /// The same of all nodes, by name: `edit(node)`.
  template <typename Edit>
  void ForNodesUnstored(const Edit& edit) {
    for (NodeRecord* const node : all_nodes_) edit(*node);
  }
  /// Brings the queue, the active set and the devices' holders in line with the job's state.
  void Changed(JobId id);
  /// The next gang of a job that holds devices, all of whose devices are its own from now on; none to give
  /// those up that its present gang does not have.
  void SetGrowth(JobId id, std::vector<Part> parts);
  /// Puts the queue in order. Returns when somebody gains the next step by its age, if nothing else happens.
  std::optional<WallTime> SetRanking(Ranking ranking);
  const Ranking& ranking() const { return ranking_; }
  QueuedJob KeyOf(const JobRecord& job) const { return ranking_.KeyOf(job); }
  /// A job that has ended and that others wait for, each once; JobId() for none.
  JobId TakeAwaited();
  /// Jobs that wait for this one, which has ended: they are to be told, and wait for it no longer.
  std::set<JobId> TakeWaiters(JobId ended) { return held_back_.TakeAfter(ended); }
  /// A job that is held back, for a reason that its record may not have yet; as above.
  JobId TakeHeldBack();
  /// A sweep of which a member has come to a rung, or has ended, so that others may be out; as above.
  JobId TakeToHalve();
  /// How many jobs of the account wait ("user ada"), those that are held back or paused too.
  uint32_t QueuedOf(const std::string& account) const;
  const std::map<std::string, uint32_t>& queued_of() const { return queued_of_; }

  /// What users ("ada") and projects ("project vision") have had; nothing of those who had nothing.
  const std::map<std::string, Usage>& usage() const { return usage_; }
  void AddUsage(const std::string& who, double device_seconds, WallTime now, Duration half_life);
  void DropUsage(const std::string& who);

  /// What users and projects ("user ada") have used by period; nothing of those who used nothing.
  const std::map<std::string, Account>& accounts() const { return accounts_; }
  Account& EditAccount(const std::string& account);
  void DropAccount(const std::string& account);

  /// Notes in the queue why the job at this place waits.
  void SetWait(size_t place, ReasonCode code) { queue_.At(place).code = code; }
  /// Notes that the job had devices reserved, for as long as it waits. Not stored.
  void Promise(JobId id);

  /// Changed since the last Commit(), in order of ids.
  std::vector<JobId> TouchedJobs() const;
  enum class Change : uint8_t { kNothing, kReason, kMore };
  /// What is another of such a job than before: nothing, nothing but the reason of its state, or more.
  Change ChangeOf(JobId id) const;
  /// Those that are not there any more are to be forgotten.
  std::vector<NodeId> TouchedNodes() const;
  /// Those that are not there any more are to be forgotten.
  std::vector<std::string> TouchedUsage() const;
  std::vector<std::string> TouchedAccounts() const;
  void Commit();
  void Rollback();
  /// Forgets a job that has ended; to be called when nothing has changed since the last Commit().
  void DropEnded(JobId id);

  /// Jobs that ended are kept until so many others have, for their late reports.
  static constexpr size_t kEndedKept = 256;

 private:
  using OldJobs = std::map<JobId, std::optional<JobRecord>>;

  QueuedJob QueueEntryOf(const JobRecord& job);
  void Enqueue(const JobRecord& job);
  void Dequeue(JobId id);
  void Count(const JobRecord& job);
  void LookAtWaits(const JobRecord& job);
  void NoteEndedBefore(const JobRecord& job);
  void RebuildQueue();
  void Hold(const JobRecord& job);
  void Release(JobId id);
  void Rebuild();
  void ListNodes();

  std::map<JobId, JobRecord> jobs_;
  std::map<NodeId, NodeRecord> nodes_;
  std::vector<NodeRecord*> all_nodes_;  ///< those of nodes_: a tree is slow to go through
  NodeKinds kinds_;
  OneOfEach<Needs> needs_;                 ///< of those in the queue
  OneOfEach<AccountNames> account_names_;  ///< the same, and of those that hold devices
  std::set<JobId> active_;
  Holdings holdings_;
  std::set<JobId> by_hand_;
  JobQueue queue_;
  std::map<JobId, QueuedJob> queued_;  ///< the key under which the job stands in the queue
  std::set<JobId> promised_;           ///< those in the queue that Promise() was called for
  Ranking ranking_;
  HeldBack held_back_;
  std::map<JobId, SweepRecord> sweeps_;
  std::set<JobId> awaited_;                    ///< that have ended and others wait for
  std::set<JobId> to_halve_;                   ///< sweeps, as TakeToHalve() has them
  std::set<JobId> to_explain_;                 ///< that are held back since they were last looked at
  std::set<JobId> counted_;                    ///< in queued_of_
  std::map<std::string, uint32_t> queued_of_;  ///< jobs that wait or are paused, by account
  std::map<std::string, Usage> usage_;
  std::map<std::string, Account> accounts_;
  std::deque<JobId> ended_;
  OldJobs old_jobs_;  ///< as they were; nothing where they were not
  /// Of former commits: a copy that is assigned to has its room already, and running jobs are edited often.
  std::vector<OldJobs::node_type> spare_;
  static constexpr size_t kSpareKept = 256;
  std::map<NodeId, std::optional<NodeRecord>> old_nodes_;
  std::map<std::string, std::optional<Usage>> old_usage_;
  std::map<std::string, std::optional<Account>> old_accounts_;
  std::map<JobId, std::optional<SweepRecord>> old_sweeps_;
};

}  // namespace imgd
