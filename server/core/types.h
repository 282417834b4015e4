#pragma once

#include <boost/container/flat_set.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/error.h"
#include "common/ids.h"
#include "common/job_kind.h"
#include "server/core/shared.h"

/// What the core knows of jobs and nodes. Plain values; no part of it touches the outside world.
/// The numbers of the enums are those of proto/imgd/v1/common.proto and node.proto, and of the database.
namespace imgd {

struct FolderView;

enum class JobState : uint8_t {
  kQueued = 1,
  kStarting = 2,
  kRunning = 3,
  kPreempting = 4,
  kPaused = 5,
  kCompleted = 6,
  kFailed = 7,
  kCancelled = 8,
};

enum class ReasonCode : uint8_t {
  kNone = 0,
  kSubmitted = 1,
  kWaitsForDevices = 2,
  kWaitsBehindJob = 3,
  kNeverFits = 4,
  kBackoff = 5,
  kPlaced = 6,
  kAllRanksStarted = 7,
  kFinished = 8,
  kCancelledByUser = 9,
  kRankKilled = 10,
  kRankFailed = 11,
  kNodeLost = 12,
  kStartFailed = 13,
  kRetriesExhausted = 14,
  kBadInput = 15,
  kNoNodes = 16,
  kRankStuck = 17,
  kStartedByHand = 18,
  kSilent = 19,
  kTimeLimit = 20,
  kPreempted = 21,
  kQuota = 22,
  kAfterJob = 24,
  kAfterNever = 25,
  kNotBefore = 26,
  kSweepFull = 27,
  kHalved = 28,
  kPausedByUser = 30,
  kResumedByUser = 31,
  kMovedByUser = 32,
  kNodeDrained = 33,
  kChangedByUser = 34,
  kBackfilled = 35,
  kReserved = 36,
  kNodeJoined = 37,
  kNodeSilent = 38,
  kNodeHeard = 39,
  kSetAsideByUser = 40,
  kNodeEmpty = 41,
  kReturnedByUser = 42,
  kNodeForgotten = 72,
  kGrows = 43,
  kResized = 44,
  kCollectiveBroken = 46,
  kSamePlace = 47,
  kSetAsideByImgd = 48,
  kStaysInUse = 94,
  kReturnedByImgd = 49,
  kNodeSick = 50,
  kNodeWell = 51,
  kLogPattern = 52,
  kSpotNotice = 53,
  kRestored = 70,
  kAdministered = 71,
  kJoinRefused = 75,
  kSessionBegun = 90,
  kSessionEnded = 91,
  kAttached = 92,
  kTrainerVersion = 93,
};

enum class NodeState : uint8_t { kReady = 1, kUnreachable = 2, kLost = 3 };

/// What a node last said of its part of a run.
enum class RunPhase : uint8_t { kUnheard = 0, kPrepared = 1, kRunning = 2, kStopping = 3, kGone = 4 };

/// "QUEUED" and so on.
std::string_view NameOf(JobState state);
/// COMPLETED, FAILED or CANCELLED: nothing comes after it.
bool IsFinal(JobState state);
/// STARTING, RUNNING or PREEMPTING: a job that imgd started holds devices.
bool HoldsDevices(JobState state);

/// One moment: the steady time that decisions take and the wall time that records take.
struct Now {
  Instant steady;
  WallTime wall;
};

/// Why something is as it is.
struct Reason {
  ReasonCode code = ReasonCode::kNone;
  std::string text;  ///< a sentence for people, no full stop
  bool operator==(const Reason&) const = default;
};

/// One start of one job.
struct RunKey {
  JobId job;
  Generation generation;
  auto operator<=>(const RunKey&) const = default;
};

/// A run that a daemon of another cluster started on one of our nodes.
struct ForeignRun {
  std::string cluster;
  RunKey run;
  auto operator<=>(const ForeignRun&) const = default;
};

/// What a log pattern asks for. The numbers are those of LogMatch in common.proto.
enum class PatternAction : uint8_t { kLabel = 1, kRetry = 2, kNoRetry = 3, kExcludeNode = 4 };

/// A line of a rank that failed, which one of the operator's patterns matches (log_patterns in imgd.yaml).
struct LogMatch {
  std::string pattern;  ///< its name
  std::string label;    ///< what the line means, for people; may be empty
  std::string line;
  PatternAction action = PatternAction::kLabel;
  bool collective = false;  ///< it tells of a broken collective, of which another rank may be the cause
  uint32_t place = 0;       ///< of the pattern among all of them: of two that match the earlier is believed
  bool operator==(const LogMatch&) const = default;
};

/// How a rank ended.
struct RankExit {
  uint32_t rank = 0;
  int exit_code = 0;
  int signal = 0;  ///< 0 when it ended by itself
  std::string last_error_line;
  int64_t pid = 0;
  bool by_us = false;          ///< it ended because imgd stopped it, so it is not a cause
  std::string where = {};      ///< where it was: "step 12, forward pass"; empty where it never said
  std::string last_line = {};  ///< of its log, as far as it was sent before; may be empty
  std::optional<LogMatch> match = {};
  bool told = false;  ///< its node had told it to end, whoever wanted that
  bool operator==(const RankExit&) const = default;
};

/// Where a rank is, as its node saw it last; as RankPulse in agent.proto.
struct RankPulse {
  uint32_t rank = 0;
  uint64_t step = 0;
  uint64_t collectives = 0;
  std::string what = {};
  Duration silent{};
  Duration still{};
  Duration silence_limit{};  ///< zero: for ever
  Duration limit{};          ///< of `still`; zero: for ever
  std::string unanswered = {};
  std::string last_line = {};
  bool dumping_core =
      false;  ///< a signal has ended its process, which writes a core dump and is silent meanwhile
};

/// What a rank's trainer said about its failure.
struct RankFailure {
  uint32_t rank = 0;
  std::string message;
  bool bad_input = false;
  bool collective_broken = false;
  std::optional<LogMatch> match = {};
  bool operator==(const RankFailure&) const = default;
};

/// Something other than a rank's exit that ends a run.
struct Trouble {
  ReasonCode code = ReasonCode::kStartFailed;
  std::string text;
  NodeId node = {};  ///< that it is the fault of; an empty name where nobody knows
  bool operator==(const Trouble&) const = default;
};

/// What a node was told on its present connection about a run.
enum class Command : uint8_t { kNothing, kPrepare, kStart, kStopAfterCheckpoint, kStop };

/// A gang's part on one node.
struct Part {
  NodeId node;
  uint32_t first_rank = 0;
  std::vector<uint32_t> devices;  ///< by index on the node
  uint32_t ranks = 0;             ///< there; 0: one for each device
  bool whole = false;             ///< nobody else gets the node's other devices
  RunPhase phase = RunPhase::kUnheard;
  bool contacted = false;            ///< something was sent, so the node may hold processes of the run
  bool lost = false;                 ///< the node is lost; the gang no longer waits for it
  Command sent = Command::kNothing;  ///< not stored
  Instant stop_by{};                 ///< with kStop: when its ranks are killed; not stored

  bool Over() const { return lost || phase == RunPhase::kGone; }
  uint32_t Ranks() const { return ranks != 0 ? ranks : static_cast<uint32_t>(devices.size()); }
  /// Whether the node's device of this index is not for others.
  bool Takes(uint32_t device) const {
    return whole || std::find(devices.begin(), devices.end(), device) != devices.end();
  }
  bool Has(uint32_t rank) const { return rank >= first_rank && rank - first_rank < Ranks(); }
  bool operator==(const Part&) const = default;
};

/// Why a run is being stopped.
enum class StopFor : uint8_t {
  kNothing = 0,
  kRetry = 1,
  kCancel = 2,
  kTimeLimit = 3,
  kPause = 4,
  kMove = 5,
  kDrain = 6,
  kPreempt = 7,
  kGrow = 8,  ///< it goes on at once, on more nodes
  kHalve = 12,
  kNotice = 13,  ///< a node of it is being taken back by its owner
};
/// The run's devices are asked back while nothing is wrong with it; it goes on later from its checkpoint.
bool GivesBack(StopFor stop);
/// Its job is back in the queue with a wait, which is longer each time until it gets anywhere. Where somebody
/// asked for the new start, or it is to have more, it has none.
bool BacksOff(StopFor stop);

/// The latest start of a job.
struct Run {
  std::vector<Part> parts;  ///< in the order of ranks
  std::string master_address;
  uint32_t master_port = 0;                      ///< 0 until rank 0's node holds one
  boost::container::flat_set<uint32_t> started;  ///< ranks that reported that they train
  bool finished = false;                         ///< rank 0 reported the end of the training
  std::vector<RankExit> exits;                   ///< in the order of arrival
  std::vector<RankFailure> failures;
  std::vector<Trouble> troubles;
  StopFor stop = StopFor::kNothing;
  bool checkpoint_first = false;
  std::string stop_actor;
  std::string stop_text;       ///< of a stop that GivesBack(): why, as "paused by ada"
  bool saved = false;          ///< a checkpoint was accepted after the stop was asked for
  bool progressed = false;     ///< a checkpoint of this run was accepted
  std::vector<Part> grows_to;  ///< with kGrow: its next gang, whose devices are kept for it
  std::set<NodeId> avoided;  ///< nodes that the job was moved off for this start; it does not grow onto them
  int64_t charged_ms = 0;    ///< that it has held its devices for, as far as it was counted for its accounts
  WallTime charged;          ///< when it was counted last; zero: never
  Instant since{};           ///< start of STARTING; not stored
  Instant charged_at{};      ///< the same by the steady clock; not stored
  Instant kept_since{};      ///< what it did since then is in no checkpoint; not stored
  Instant held_since{};      ///< the same, also over a restart of the daemon; not stored
  Instant stop_since{};      ///< when the stop was sent; not stored
  Instant gone_since{};      ///< when the last part was over; not stored
  /// When the training will be over at its present speed, as rank 0 said last; not stored.
  std::optional<Instant> expected_end;

  /// Where devices are its own.
  const std::vector<Part>& Held() const { return grows_to.empty() ? parts : grows_to; }
  bool operator==(const Run&) const = default;
};

/// What a gang asks of its nodes and devices beside their number (server/core/needs.h).
struct Needs {
  bool gpu = false;                                        ///< a CPU slot does not do
  bool cpu = false;                                        ///< a GPU does not do
  std::vector<std::string> models;                         ///< one of these, as IsModel() has it; empty: any
  uint64_t memory_bytes = 0;                               ///< of a device, at least
  bool whole_nodes = false;                                ///< no other job on its nodes
  std::map<std::string, std::vector<std::string>> labels;  ///< a node has one of the values
  std::map<std::string, std::vector<std::string>> not_labels;  ///< a node has none of the values

  auto operator<=>(const Needs&) const = default;
};

/// A checkpoint that the daemon accepted.
struct Checkpoint {
  std::string path;
  uint64_t step = 0;
  Generation generation;
  uint64_t size_bytes = 0;
  std::string manifest_sha256;
  WallTime accepted = {};
  bool operator==(const Checkpoint&) const = default;
};

/// How another job has to have ended for one that comes after it.
enum class AfterEnd : uint8_t { kOk = 1, kAny = 2, kFailed = 3 };

/// A job that another one comes after.
struct Dependency {
  JobId job;
  std::string name;  ///< of that job
  AfterEnd when = AfterEnd::kOk;
  std::optional<JobState> ended = {};  ///< as what it has ended; nothing before
  bool operator==(const Dependency&) const = default;
};

/// A setting that a member of a sweep has of its own: "optimizer.lr" and "0.1".
struct SweepSetting {
  std::string name;
  std::string value;
  bool operator==(const SweepSetting&) const = default;
};

/// What is known of a run that somebody started by hand: imgd tells of it, and has no part in it.
struct ByHand {
  std::vector<std::string> hosts;  ///< where it runs, as far as it said; rank 0's first, never empty
  std::string token;               ///< name of the token that it reports with
  WallTime last_heard;

  Duration silence{};  ///< since then, counted only while the daemon is up; not stored
  bool operator==(const ByHand&) const = default;
};

/// How a job's own ranks crashed since its last progress (an accepted checkpoint).
struct Crashes {
  std::string place;       ///< of the latest, as CrashPlace() has it; empty where nobody knows
  uint32_t times = 0;      ///< how often running it was there
  std::set<NodeId> nodes;  ///< that any of them were on
  std::set<NodeId> sick;   ///< of which its log said so
  bool operator==(const Crashes&) const = default;
};

/// A job, without its file.
struct JobRecord {
  JobId id;
  JobKind kind = JobKind::kTraining;
  bool per_node = false;  ///< one process on each node, with all of the job's devices there
  std::string name;
  std::string owner;
  std::string project;  ///< that it counts for; may be empty
  int priority = 0;
  uint32_t nodes = 1;                    ///< that it needs, at least
  uint32_t max_nodes = 0;                ///< that it takes at most, where those are more
  int64_t resize_interval_ms = 600'000;  ///< that a start lasts before it may grow
  uint32_t ranks_per_node = 1;           ///< devices on each node, and ranks unless per_node
  Needs needs;
  int64_t grace_ms = 10'000;
  uint32_t max_restarts = 10;
  int64_t time_limit_ms = 0;  ///< that it may hold devices for, over all starts; 0: for ever
  bool preemptible = true;    ///< jobs of a higher priority may have its devices
  std::string checkpoint_dir;

  JobState state = JobState::kQueued;
  Reason reason;
  Generation generation;           ///< of the latest start
  Generation last_writer;          ///< latest generation whose ranks ran
  uint32_t restarts = 0;           ///< times back to the queue after a failure
  uint32_t failures = 0;           ///< those of them that count against max_restarts (Verdict::counts)
  uint32_t failures_in_row = 0;    ///< since the last progress; the backoff grows with it
  uint32_t given_back_in_row = 0;  ///< the same of starts that were preempted or left a machine; not stored
  Crashes crashes;
  int64_t held_ms = 0;        ///< that its former starts held devices for
  double device_seconds = 0;  ///< that all its starts had, as far as they were counted
  double cost = 0;            ///< of these, by the prices of the nodes
  WallTime submitted;
  WallTime started;
  WallTime ended;
  std::set<NodeId> avoid;         ///< nodes that its next start must not be on
  JobId rerun_of;                 ///< the job whose file it was made from; JobId() for none
  std::vector<Dependency> after;  ///< it waits for them
  WallTime not_before_wall;       ///< it waits for this time; zero once that has come, or for none
  JobId sweep;                    ///< that it belongs to, by the sweep's first job; JobId() for none
  std::vector<SweepSetting> sweep_settings;  ///< that make it differ from the others of its sweep
  WallTime retry_at;                         ///< QUEUED with kBackoff: when it may start
  Instant not_before{};                      ///< the same by the steady clock; not stored
  Run run;                                   ///< no parts before the first start
  std::vector<Checkpoint> checkpoints;       ///< accepted ones, newest first, at most kCheckpointsKept
  std::optional<ByHand> by_hand;             ///< nothing: imgd starts and ends it

  static constexpr size_t kCheckpointsKept = 16;
  /// It may have more nodes than it needs.
  bool IsElastic() const { return max_nodes > nodes; }
  uint32_t MostNodes() const { return IsElastic() ? max_nodes : nodes; }
  /// Of the latest start; what it needs where there was none.
  uint32_t NodesNow() const { return run.parts.empty() ? nodes : static_cast<uint32_t>(run.parts.size()); }
  /// It trains: its ranks report what they do, save checkpoints when asked, and have an end of their own.
  bool Trains() const { return kind == JobKind::kTraining; }
  uint32_t RanksOnNode() const { return per_node ? 1 : ranks_per_node; }
  uint32_t WorldSize() const { return NodesNow() * RanksOnNode(); }
  /// It holds devices of imgd's nodes.
  bool HoldsDevices() const { return !by_hand && imgd::HoldsDevices(state); }
  /// Its latest start has not ended.
  bool IsActive() const { return imgd::HoldsDevices(state); }
  bool operator==(const JobRecord&) const = default;
};

/// A GPU or CPU slot.
struct Device {
  uint32_t index = 0;
  std::string model;  ///< "cpu" for a CPU slot
  std::string uuid;
  uint64_t memory_bytes = 0;
  bool IsGpu() const { return model != "cpu"; }
  auto operator<=>(const Device&) const = default;
};

/// A folder that a node shares with others that know the same id.
struct SharedFolder {
  std::string path;
  std::string id;
  bool operator==(const SharedFolder&) const = default;
};

/// Words about a node, by name: "zone" -> "us-east-1a". What its agent declares.
using Labels = std::map<std::string, std::string>;

/// What a node is, as far as gangs choose by it.
struct NodeKind {
  Shared<std::vector<Device>> devices;  ///< without index and uuid
  Labels labels;
};

std::shared_ptr<const NodeKind> KindOf(std::vector<Device> devices, Labels labels);

/// Gives nodes that are the same one NodeKind, and kinds with the same devices one list of them, so that a
/// plan looks at each once.
class NodeKinds {
 public:
  std::shared_ptr<const NodeKind> Of(std::vector<Device> devices, Labels labels);

 private:
  using Kind = std::shared_ptr<const NodeKind>;
  struct Less {
    bool operator()(const Kind& a, const Kind& b) const;
  };
  std::set<Kind, Less> known_;
  OneOfEach<std::vector<Device>> devices_;
  size_t clean_at_ = 64;  ///< those that no node has any more go when there are so many
};

/// Who keeps new runs off a node: somebody, or imgd itself, after jobs failed there in a row or for a line
/// of a log.
enum class AsideBy : uint8_t { kUser, kStrikes, kPattern };

/// That new runs are kept off a node.
struct SetAside {
  bool drain = false;  ///< what ran there was asked to go elsewhere too; else it goes on
  std::string reason;  ///< may be empty
  std::string actor;
  WallTime since;
  bool told_empty = false;  ///< it was said that nothing runs there any more
  AsideBy by = AsideBy::kUser;
  bool operator==(const SetAside&) const = default;
};

/// What a health check of a node looks at. The numbers are those of node.proto.
enum class ProblemKind : uint8_t { kDisk = 1, kMemory = 2, kClock = 3, kGpu = 4, kSharedFolder = 5 };

/// What is wrong with a node, in words that go after "it": "has 0.2 GiB free on the disk of
/// /var/lib/imgagent".
using Problems = std::map<ProblemKind, std::string>;

/// That a machine is being taken back by whoever owns it: a spot instance, mostly.
struct Notice {
  WallTime at;         ///< when, by the owner's clock; zero where nobody said
  std::string action;  ///< what becomes of it then: "terminate", "stop", "hibernate"; may be empty
  bool operator==(const Notice&) const = default;
};

/// A job that failed on a node, by what may be the node's fault.
struct Strike {
  JobId job;  ///< JobId() for one that was deleted
  std::string name;
  bool told = false;  ///< a line in its log said that it is the node's fault
  bool operator==(const Strike&) const = default;
};

/// A node.
struct NodeRecord {
  NodeId id;
  std::string agent_id;
  std::string agent_version;
  std::string address;
  std::string filesystem_id;
  std::vector<Device> devices;
  std::vector<SharedFolder> shared_folders;
  Labels labels;
  double price_per_hour = 0;  ///< of the whole node, in whatever currency prices are
  WallTime joined;
  NodeState state = NodeState::kReady;
  WallTime last_heartbeat;
  std::optional<SetAside> set_aside;
  std::vector<Strike>
      strikes;  ///< different jobs that failed there in a row, one of a sweep, the oldest first

  // Not stored:
  std::shared_ptr<const NodeKind> kind;  ///< of devices and labels; never null once the core has the node
  std::shared_ptr<const FolderView> folders;  ///< as ViewOf() has it; the same
  std::vector<uint32_t> indexes;              ///< of devices
  /// Where Prometheus finds its agent, "HOST:PORT"; empty where it does not. Nothing: the agent has not
  /// joined since the daemon began.
  std::optional<std::string> metrics_address;
  bool metrics_relayed = false;  ///< imgd asks its agent for them, in Prometheus' place
  std::string incarnation;       ///< of the agent's process, as it said last
  uint64_t session = 0;          ///< of the agent's stream; 0 when there is none
  Duration silence{};            ///< since it was last heard, counted only while the daemon is up
  std::set<RunKey> stale;        ///< runs that it still holds and should not
  Problems problems;             ///< of the latest health check
  std::optional<Notice> notice;  ///< as its agent heard it last
  uint32_t skewed = 0;           ///< heartbeats in a row whose clock was far off
  Instant skewed_at{};           ///< when that grew last
  std::vector<JobId> holders;    ///< for each of devices: the job that holds it; JobId() when free
  std::map<ForeignRun, std::vector<uint32_t>> foreign;  ///< devices that other clusters' runs hold there

  bool Connected() const { return session != 0; }
  /// The cluster whose run holds the device of that index; nothing when none does.
  std::optional<std::string> ForeignHolder(uint32_t index) const;
  /// Nothing that is known speaks against new ranks there; its agent may still have to come back.
  bool Fit() const {
    return state == NodeState::kReady && stale.empty() && !set_aside && problems.empty() && !notice;
  }
  /// New ranks may be placed there.
  bool Usable() const { return Connected() && Fit(); }
  /// It is there, and no run of any cluster has anything on it.
  bool IsEmpty() const;
};

}  // namespace imgd
