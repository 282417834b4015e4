#pragma once

#include <algorithm>
#include <boost/container/flat_map.hpp>
#include <compare>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/core/scheduler.h"
#include "server/core/types.h"
#include "tests/sim/invariants.h"

namespace imgd::sim {

/// What is gone through in each commit: a row in memory, not a tree.
template <typename Value>
using ByNode = boost::container::flat_map<NodeId, Value>;

/// Where nodes are asked for in the order of their names, from `at` on: the value of this one.
template <typename Value>
Value& ValueAt(ByNode<Value>& values, typename ByNode<Value>::iterator& at, const NodeId& node) {
  auto order = std::strong_ordering::greater;
  while (at != values.end() && (order = at->first <=> node) < 0) ++at;
  if (at == values.end() || order > 0) at = values.emplace_hint(at, node, Value{});
  return (at++)->second;
}

/// What the simulator itself notes of what was promised and done, so that the core is not asked about itself.
struct Ledger {
  struct Job {
    bool acknowledged = false;
    bool cancel_acknowledged = false;
    bool bad_input = false;  ///< a rank ended with exit code 2
    JobState state = JobState::kQueued;
    Generation generation;
    Instant not_before{};                              ///< of a retry
    std::set<NodeId> avoid;                            ///< as of the last check
    uint32_t in_row = 0;                               ///< failures since the last accepted checkpoint
    std::string crashed_at;                            ///< where its latest start did; empty: elsewhere
    uint32_t crashes_there = 0;                        ///< how often running, without a checkpoint
    Generation noted;                                  ///< the start of the latest end among these
    bool doubtful = false;                             ///< some of these crashes are not known
    std::set<NodeId> crashed_on;                       ///< since its last accepted checkpoint
    uint32_t own_failures = 0;                         ///< ends that were not a lost node's
    std::vector<std::string> accepted;                 ///< checkpoints, newest first
    Generation newest_accepted;                        ///< generation of the newest
    std::string storage;                               ///< that its latest start saw
    std::vector<std::pair<NodeId, uint32_t>> devices;  ///< that it holds
    Duration held{};                                   ///< by former starts
    Instant held_since{};                              ///< of the present one
    std::optional<std::pair<Generation, Instant>> stop_since;  ///< that start was told to stop at once
    std::vector<Part> grew_from;                               ///< what it had then
    bool grows = false;                                        ///< it holds devices, and is ended to grow
    std::vector<Part> grows_to;                                ///< that its latest start was ended for
    uint32_t failures = 0;                                     ///< that count
    bool gives_back = false;  ///< a node of its latest start is being taken back, and it was ended for that
    std::optional<Instant> portless_since;  ///< it begins, and has no port for its rendezvous
    bool uses = false;                      ///< the last of `used` of its accounts is not over
    std::set<NodeId> moved_off;             ///< nodes that its next start must not be on
    bool preempted = false;                 ///< its latest start was ended for one of a higher priority
    Instant kept_since{};                   ///< what it did since then is in no checkpoint
    Generation told_of;                     ///< the start whose nodes were told where to meet
    std::map<NodeId, std::string> told;     ///< what each of them was told last
  };
  struct Sweep {
    std::string name;
    JobId first;
    uint32_t members = 0;
    uint32_t max_running = 0;
    std::optional<Halving> halving;
  };
  /// What the first in the queue was promised.
  struct Promise {
    JobId job;
    std::optional<Instant> from;  ///< nothing where nobody knows, or only guesses
    bool guessed = false;
    uint32_t busy = 0;      ///< devices of its gang that are still held
    Instant first_since{};  ///< since when it has been the first, on these nodes
    uint64_t nodes = 0;     ///< their digest, as NodesNow has it
  };

  /// Devices that were held, and what they cost an hour.
  struct Use {
    JobId job;
    Instant from;
    Instant to;  ///< Instant::max() while they are
    double devices = 0;
    double price_per_hour = 0;
  };
  /// What people asked for and what holds until it is undone.
  struct Asked {
    std::set<JobId> paused;
    std::map<NodeId, bool> aside;  ///< nodes that somebody set aside, and whether they are drained
    bool changed = false;          ///< since it was stored
  };

  std::map<JobId, Job> jobs;
  std::map<std::string, std::vector<Use>> used;  ///< by account
  Asked asked;
  Asked asked_stored;
  std::map<std::pair<JobId, size_t>, RungResults> rungs;  ///< by sweep and rung
  /// By the first job; also some that were not stored in the end. A client that got no answer submits twice.
  std::map<JobId, Sweep> sweeps;
  std::map<JobId, std::vector<Dependency>> after;  ///< of each job, as it was submitted
  std::map<std::pair<NodeId, uint32_t>, JobId> holders;
  /// How many devices of each node are among them.
  ByNode<uint32_t> held;
  std::map<NodeId, uint32_t> foreign;  ///< the device that another cluster's run has, as the node told
  ByNode<NodeState> nodes;
  std::map<NodeId, bool> ill;  ///< by its health checks, as the daemon was told
  /// Nodes that are being taken back, as the daemon was told since it last lost what it had not stored.
  std::map<NodeId, Notice> notices;
  std::set<NodeId> noticed;  ///< that had one since the last commit
  /// Jobs, or their sweeps, of which a rank failed on the node by itself since it was last known to be good.
  std::map<NodeId, std::set<JobId>> failed_on;
  /// Of these, those of which it is certain that imgd blames the node.
  std::map<NodeId, std::set<JobId>> blamed;
  std::set<NodeId> aside;  ///< set aside, as of the last check
  /// The daemon's sleep since then does not count.
  ByNode<Instant> heard;
  std::optional<Promise> promise;
  std::map<JobId, Instant> could_grow;   ///< whom nothing keeps from growing, and since when
  std::map<JobId, Generation> reserved;  ///< who had devices reserved while it waited, by its last start
  Duration longest_hold{};
  uint64_t checks = 0;
  bool every_commit = false;  ///< Looks() is always true
  NodesNow nodes_now;         ///< as LookAtNodes() found them

  /// Whether what costs much is looked at now, as at each `every`th check.
  bool Looks(uint64_t every, uint64_t at = 0) const { return every_commit || checks % every == at; }

  /// The sweep of this name that the job is of; null where it is of none.
  const Sweep* SweepOf(JobId job, const std::string& name) const {
    auto after_it = sweeps.upper_bound(job);
    if (name.empty() || after_it == sweeps.begin()) return nullptr;
    const Sweep& sweep = std::prev(after_it)->second;
    return sweep.name == name && job.value() < sweep.first.value() + sweep.members ? &sweep : nullptr;
  }
  void Returned(const NodeId& node) {
    failed_on.erase(node);
    blamed.erase(node);
  }
  void Noticed(const NodeId& node, const std::optional<Notice>& notice) {
    notices.erase(node);
    if (!notice) return;
    notices[node] = *notice;
    noticed.insert(node);
  }
  void Acknowledged(JobId job) { jobs[job].acknowledged = true; }
  void CancelAcknowledged(JobId job) { jobs[job].cancel_acknowledged = true; }
  void Heard(const NodeId& node, Instant at) { heard[node] = at; }
  void Slept(Duration time, Instant now) {
    for (auto& [node, at] : heard) at = std::min(at + time, now);
  }
  void Stored() {
    if (!asked.changed) return;
    asked.changed = false;
    asked_stored = asked;
  }
  /// The daemon lost what it had not stored.
  void Disturb() {
    promise.reset();
    reserved.clear();
    notices.clear();
    noticed.clear();
    asked = asked_stored;
  }
};

}  // namespace imgd::sim
