#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/error.h"
#include "common/ids.h"

/// What the core knows of jobs and nodes. Plain values; no part of it touches the outside world.
/// The numbers of the enums are those of proto/imgd/v1/common.proto and node.proto, and of the database.
namespace imgd {

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
};

enum class NodeState : uint8_t { kReady = 1, kUnreachable = 2, kLost = 3 };

/// What a node last said of its part of a run.
enum class RunPhase : uint8_t { kUnheard = 0, kPrepared = 1, kRunning = 2, kStopping = 3, kGone = 4 };

/// "QUEUED" and so on.
std::string_view NameOf(JobState state);
/// COMPLETED, FAILED or CANCELLED: nothing comes after it.
bool IsFinal(JobState state);
/// STARTING, RUNNING or PREEMPTING: the job holds devices.
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
};

/// What a rank's trainer said about its failure.
struct RankFailure {
  uint32_t rank = 0;
  std::string message;
  bool bad_input = false;
  bool collective_broken = false;
  bool operator==(const RankFailure&) const = default;
};

/// Something other than a rank's exit that ends a run.
struct Trouble {
  ReasonCode code = ReasonCode::kStartFailed;
  std::string text;
  bool operator==(const Trouble&) const = default;
};

/// What a node was told on its present connection about a run.
enum class Command : uint8_t { kNothing, kPrepare, kStart, kStopAfterCheckpoint, kStop };

/// A gang's part on one node.
struct Part {
  NodeId node;
  uint32_t first_rank = 0;
  std::vector<uint32_t> devices;  ///< by index on the node; one rank each
  RunPhase phase = RunPhase::kUnheard;
  bool contacted = false;            ///< something was sent, so the node may hold processes of the run
  bool lost = false;                 ///< the node is lost; the gang no longer waits for it
  Command sent = Command::kNothing;  ///< not stored

  bool Over() const { return lost || phase == RunPhase::kGone; }
  bool operator==(const Part&) const = default;
};

/// Why a run is being stopped.
enum class StopFor : uint8_t { kNothing = 0, kRetry = 1, kCancel = 2 };

/// The latest start of a job.
struct Run {
  std::vector<Part> parts;  ///< in the order of ranks
  std::string master_address;
  uint32_t master_port = 0;     ///< 0 until rank 0's node holds one
  std::set<uint32_t> started;   ///< ranks that reported that they train
  bool finished = false;        ///< rank 0 reported the end of the training
  std::vector<RankExit> exits;  ///< in the order of arrival
  std::vector<RankFailure> failures;
  std::vector<Trouble> troubles;
  StopFor stop = StopFor::kNothing;
  bool checkpoint_first = false;
  std::string stop_actor;
  bool progressed = false;  ///< a checkpoint of this run was accepted
  Instant since{};          ///< start of STARTING; not stored
  Instant stop_since{};     ///< when the stop was sent; not stored
  Instant gone_since{};     ///< when the last part was over; not stored
};

/// A checkpoint that the daemon accepted.
struct Checkpoint {
  std::string path;
  uint64_t step = 0;
  Generation generation;
  uint64_t size_bytes = 0;
  std::string manifest_sha256;
  bool operator==(const Checkpoint&) const = default;
};

/// A job, without its file.
struct JobRecord {
  JobId id;
  std::string name;
  std::string owner;
  int priority = 0;
  uint32_t nodes = 1;
  uint32_t ranks_per_node = 1;
  int64_t grace_ms = 10'000;
  uint32_t max_restarts = 10;
  std::string checkpoint_dir;

  JobState state = JobState::kQueued;
  Reason reason;
  Generation generation;         ///< of the latest start
  Generation last_writer;        ///< latest generation whose ranks ran
  uint32_t restarts = 0;         ///< times back to the queue after a failure
  uint32_t failures = 0;         ///< those of them that count against max_restarts: all but lost nodes
  uint32_t failures_in_row = 0;  ///< since the last progress; the backoff grows with it
  WallTime submitted;
  WallTime started;
  WallTime ended;
  WallTime retry_at;                    ///< QUEUED with kBackoff: when it may start
  Instant not_before{};                 ///< the same by the steady clock; not stored
  Run run;                              ///< no parts before the first start
  std::vector<Checkpoint> checkpoints;  ///< accepted ones, newest first, at most kCheckpointsKept

  static constexpr size_t kCheckpointsKept = 16;
  uint32_t WorldSize() const { return nodes * ranks_per_node; }
};

/// A GPU or CPU slot.
struct Device {
  uint32_t index = 0;
  std::string model;
  std::string uuid;
  uint64_t memory_bytes = 0;
  bool operator==(const Device&) const = default;
};

/// A folder that a node shares with others that know the same id.
struct SharedFolder {
  std::string path;
  std::string id;
  bool operator==(const SharedFolder&) const = default;
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
  WallTime joined;
  NodeState state = NodeState::kReady;
  WallTime last_heartbeat;

  // Not stored:
  uint64_t session = 0;        ///< of the agent's stream; 0 when there is none
  Duration silence{};          ///< since it was last heard, counted only while the daemon is up
  std::set<RunKey> stale;      ///< runs that it still holds and should not
  std::vector<JobId> holders;  ///< for each of devices: the job that holds it; JobId() when free
  std::map<ForeignRun, std::vector<uint32_t>> foreign;  ///< devices that other clusters' runs hold there

  bool Connected() const { return session != 0; }
  /// The cluster whose run holds the device of that index; nothing when none does.
  std::optional<std::string> ForeignHolder(uint32_t index) const;
  /// New ranks may be placed there.
  bool Usable() const { return Connected() && state == NodeState::kReady && stale.empty(); }
};

}  // namespace imgd
