#pragma once

#include <boost/container/flat_map.hpp>
#include <boost/container/flat_set.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/core/folders.h"
#include "server/core/needs.h"
#include "server/core/shared.h"
#include "server/core/shares.h"
#include "server/core/types.h"

namespace imgd {

/// Accounts that a job counts for: "user ada", "project vision".
using AccountNames = std::vector<std::string>;

struct NodeSlots;
class Layout;

/// By which jobs that wait are in order: the higher rank first, then the turn, then the earlier submission.
struct QueueKey {
  int rank = 0;
  Turn turn = {};
  JobId id;

  bool Before(const QueueKey& other) const {
    if (rank != other.rank) return rank > other.rank;
    return turn != other.turn ? turn < other.turn : id < other.id;
  }
};

/// A job that waits, as the scheduler sees it. The queue is in this order: higher Rank() first, then those
/// whose projects and users have had less lately, then the earlier submission.
struct QueuedJob {
  static constexpr uint32_t kAnySize = std::numeric_limits<uint32_t>::max();

  int priority = 0;
  JobId id;
  std::string name = {};  ///< for people
  Turn turn = {};         ///< among jobs of one rank
  int aged = 0;           ///< steps of priority that it has for its wait (server/core/ranking.h)
  WallTime waits_since = {};
  uint32_t nodes = 1;  ///< that it needs
  uint32_t max_nodes =
      0;  ///< that it takes where there are so many; no more than it needs where this is less
  uint32_t ranks_per_node = 1;
  // Of those in a queue that are the same each has one place, by which plans know them again.
  Shared<Needs> needs = {};
  Shared<AccountNames> accounts = {};  ///< that its devices count for
  Instant not_before{};
  std::string folder = {};   ///< that all nodes of the gang must share; empty where it does not matter
  NodeId resumes_with = {};  ///< its nodes must share the folder with this one, where its checkpoints are
  bool keeps_place = false;  ///< until not_before, too: those after it get no device that it needs
  Duration most{};           ///< that it will hold its devices for, from its start; zero where nobody knows
  std::set<NodeId> avoid = {};          ///< nodes that it must not be placed on
  uint32_t most_devices = kAnySize;     ///< that a node may have for it to be placed there
  ReasonCode code = ReasonCode::kNone;  ///< why it waits, as last decided
  bool regroups = false;                ///< it only ended to go on with the nodes that are kept for it
  bool promised = false;                ///< it has had devices reserved since it has been waiting

  /// By which it has its place. It preempts others by its priority alone.
  int Rank() const { return priority + aged; }
  /// Some nodes are not for it, whatever is free there.
  bool IsChoosy() const { return !avoid.empty() || most_devices != kAnySize; }
  bool KeepsOff(const NodeSlots& node) const;
  /// By `most_devices` alone.
  bool IsTooLarge(const NodeSlots& node) const;
  QueueKey Key() const { return {Rank(), turn, id}; }
  /// True when this one comes before the other in the queue.
  bool Before(const QueuedJob& other) const { return Key().Before(other.Key()); }
};

/// Where the job is in a queue that is in order, from 0; nothing where it is not. Of the key only what the
/// order depends on is looked at.
std::optional<size_t> PlaceIn(const std::vector<QueuedJob>& queue, const QueuedJob& key);

/// Stands for the holder of a device that a run of another cluster has.
inline constexpr JobId kForeignHolder{std::numeric_limits<uint64_t>::max()};

/// Nodes of one sort have as many devices, of one kind: what a gang asks of them has one answer.
struct NodeSort {
  const NodeKind* kind = nullptr;
  size_t devices = 0;
  auto operator<=>(const NodeSort&) const = default;
};

struct NodeSortHash {
  size_t operator()(const NodeSort& sort) const {
    // The places of kinds are far apart.
    return reinterpret_cast<uintptr_t>(sort.kind) / sizeof(NodeKind) + sort.devices;
  }
};

/// What a node can take.
struct NodeSlots {
  NodeId id;
  std::vector<uint32_t> devices;  ///< indexes
  std::vector<JobId> holders;     ///< for each of devices; JobId() when free
  bool usable = false;            ///< something may be placed there now
  bool lost = false;              ///< or set aside, or sick: it may never take anything again
  std::string why_not;            ///< why it takes nothing now; empty when it does
  std::shared_ptr<const FolderView> folders = {};  ///< that it sees; null: nothing is known
  std::shared_ptr<const NodeKind> kind =
      {};  ///< null: nothing is known, so only a gang without needs goes there

  NodeSort Sort() const { return {kind.get(), devices.size()}; }
  uint32_t Free() const;
  const Labels& LabelsOrNone() const;
  /// Its i-th device does for a gang of these needs, whatever its labels.
  bool DeviceDoes(const Needs& needs, size_t i) const;
  /// Of these devices, by index, those that do; and only how many.
  std::vector<uint32_t> Suitable(const Needs& needs, const std::vector<uint32_t>& indexes) const;
  uint32_t CountOf(const Needs& needs, const std::vector<uint32_t>& indexes) const;
  /// How many ranks of such a gang it could have if nothing else ran, and now.
  uint32_t RoomFor(const Needs& needs) const;
  uint32_t FreeFor(const Needs& needs) const;
  /// Makes the job the holder of those of the part's devices that are free.
  void Take(JobId job, const Part& part);
};

/// The sorts that there are among nodes, each by its number.
struct NodeSorts {
  explicit NodeSorts(const std::vector<NodeSlots>& nodes);
  std::vector<uint32_t> of;        ///< the sort of each node
  std::vector<uint32_t> examples;  ///< the first node of each sort
};

/// What nodes have for gangs of the same needs, as NodeSlots tells it, but looked at once for each kind of
/// node: for those who ask many nodes.
class NodesCheck {
 public:
  struct Judged {
    uint32_t room = 0;       ///< devices that do
    std::vector<bool> does;  ///< which; empty where all do, or none is any good
  };

  /// `needs`, and the nodes' kinds, must outlive it.
  explicit NodesCheck(const Needs& needs) : needs_(needs) {}
  const Judged& Of(const NodeSlots& node) { return Of(node.Sort()); }
  const Judged& Of(const NodeSort& sort);
  /// The same, for who asks only once for each sort.
  Judged Judge(const NodeSort& sort);
  uint32_t RoomFor(const NodeSlots& node) { return Of(node).room; }
  uint32_t FreeFor(const NodeSlots& node);
  /// Of a node that has room for it: the i-th device.
  bool Does(const NodeSlots& node, size_t i);

 private:
  /// A kind's devices, and how many of them the node has.
  using Devices = std::pair<const std::vector<Device>*, size_t>;
  const Judged& JudgeDevices(const Devices& devices);

  const Needs& needs_;
  std::map<NodeSort, Judged> known_;
  std::map<Devices, Judged> of_devices_;      ///< far fewer than there are sorts
  std::pair<Devices, const Judged*> last_{};  ///< many in a row have the same
};

/// What is kept for a job that waits for devices: for the first of those that could use the same nodes, for
/// who was the first when others came before it, and for these.
struct Reservation {
  JobId job;
  QueueKey place = {};  ///< of the job
  std::vector<Part> parts;
  std::optional<Instant> from;  ///< when it can start; nothing where nobody knows
  /// `from` is what running jobs think, or others may go first: who waits for its quota or its retry, or who
  /// came before it. Else all are ended by then.
  bool estimate = false;
  std::vector<JobId> victims = {};  ///< that are to give their devices back, so that it can start
};

/// In the order of the queue.
using Reservations = std::vector<Reservation>;
/// Null where nothing is reserved for the job.
const Reservation* ReservationOf(const Reservations& reserved, JobId job);

/// Whether a job that holds devices gives them back already, and what is to come of it.
enum class Leaving : uint8_t {
  kNot,
  kForGood,    ///< it has ended with that
  kGoesOn,     ///< it starts again later, or is paused
  kComesBack,  ///< it takes its old place in the queue, so that only who is before it gets them
};

/// A job that holds devices, as one of a higher priority sees it.
struct Holder {
  int priority = 0;  ///< with what it had aged by when it started: that lasts as long as it runs
  int aged = 0;      ///< how much that is
  bool preemptible = false;
  Leaving leaving = Leaving::kNot;
  Duration to_stop{};  ///< that this takes at most
  Duration at_risk{};  ///< work of all its ranks together that is in no checkpoint

  bool Leaves() const { return leaving != Leaving::kNot; }
};

/// What an account may have at once, and has.
struct Allowance {
  uint32_t devices = 0;           ///< 0: any number
  uint32_t used = 0;              ///< of them
  std::optional<UsedUp> used_up;  ///< nothing of it starts

  bool Has(uint32_t more) const { return !used_up && (devices == 0 || used + more <= devices); }
  /// So many devices may be had once others are given back.
  bool CouldHave(uint32_t count) const { return !used_up && (devices == 0 || count <= devices); }
};

// Made anew for each pass, in the order of ids, and looked things up in many times: a row in memory, not a
// tree.
using EndTimes = boost::container::flat_map<JobId, Instant>;

/// The job is asked for its devices, and has ended by then: later than it ends by itself it does not.
inline void EndsBy(JobId job, Instant asked, EndTimes& ends) {
  const auto [known, is_new] = ends.try_emplace(job, asked);
  if (!is_new) known->second = std::min(known->second, asked);
}
using Holders = boost::container::flat_map<JobId, Holder>;
using JobNames = boost::container::flat_map<JobId, std::string>;
using JobSet = boost::container::flat_set<JobId>;

/// The cluster at one moment.
struct Snapshot {
  Instant now{};
  std::vector<NodeSlots> nodes;                 ///< by name
  JobNames job_names;                           ///< of those that hold devices or have some reserved
  std::set<JobId> retrying;                     ///< of those holders: jobs that wait for their next start
  EndTimes ends;                                ///< of those holders: when they end, where that is known
  JobSet estimated;                             ///< of those ends: what the job itself thinks by its speed
  Holders holders;                              ///< those that hold devices
  std::map<std::string, Allowance> allowances;  ///< of accounts that have one
  std::string currency;                         ///< of prices, for people; may be empty
  /// By the plan before; no matter to MakePlan(). Shared: a large gang's has many parts.
  std::shared_ptr<const Reservations> reserved = std::make_shared<const Reservations>();

  /// Null for one that is not there.
  NodeSlots* NodeOf(const NodeId& id);
  const NodeSlots* NodeOf(const NodeId& id) const;
};

/// What a job's quotas leave it: by the account that has the least left.
struct QuotaLeft {
  std::string account;
  uint32_t devices = 0;
};

/// A gang and where it goes.
struct Placement {
  JobId job;
  std::vector<Part> parts;
  JobId passes;  ///< the first before it in the queue that waits for some of these nodes; none where nobody
                 ///< does
  /// With these parts, where it could take more; nothing where none of its accounts has a quota of devices.
  std::optional<QuotaLeft> quota_left = {};
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
  Reservations reserved;
};

/// Places whole gangs on free devices; never part of one. Goes through the queue in order. The first job that
/// waits for devices has those reserved that come free for it first (EASY backfilling, Lifka 1995); those
/// after it may start on others, or on these too where they end before they are needed, so nobody is starved.
/// The same has each later one that could use no node which one before it waits for, up to so many. Who has
/// had devices reserved keeps some when others come before it, as these have then: what comes free when those
/// before it are done, so that nobody behind puts it off; up to so many.
/// Where jobs of a lower priority than such a one hold what it needs, they are preempted, as few and as
/// cheaply as Room::ChooseVictims() finds. One that no set of known nodes could hold has nothing reserved.
/// One that waits for its retry keeps its place: it gets devices before those that come after it, but only
/// starts on them when the wait is over. Where the wait is long it has no place. Pure: the same snapshot and
/// queue give the same plan, in the same order. Cost: O(nodes * log nodes + jobs + nodes of those that start
/// * log nodes), for each folder that gangs must share and each set of needs.
/// `memory`: what plans keep for the next one, which has no part in what is planned.
Plan MakePlan(const Snapshot& cluster, const std::vector<QueuedJob>& queue, std::shared_ptr<Layout>& memory);
Plan MakePlan(const Snapshot& cluster, const std::vector<QueuedJob>& queue);

}  // namespace imgd
