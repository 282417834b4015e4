#pragma once

#include <string>
#include <variant>
#include <vector>

#include "server/core/types.h"

/// What the reactor wants done, in order. Nothing is sent before everything that came with it is durable; the
/// changed records themselves are in ClusterState::Touched...().
namespace imgd {

/// A row of a job's history.
struct AppendEvent {
  JobId job;
  Generation generation;
  JobState from = JobState::kQueued;
  JobState to = JobState::kQueued;
  bool first = false;  ///< the job is new; there is no state before
  Reason reason;
  std::string actor;  ///< "scheduler", "agent:NODE", "user:NAME"
  WallTime time;
};

/// A line of the record of decisions that is no change of a job's state.
struct AppendDecision {
  JobId job;    ///< that it is about; JobId() for none
  NodeId node;  ///< the same; an empty name for none
  Reason reason;
  std::string actor;  ///< as in AppendEvent
  WallTime time;
};

/// A rank ended: a numbered event of the job.
struct AppendRankExit {
  RunKey run;
  RankExit exit;
  WallTime time;
};

/// A checkpoint was accepted.
struct SaveCheckpoint {
  JobId job;
  Checkpoint checkpoint;
};

/// A member of a sweep has reached a rung.
struct SaveRungResult {
  JobId sweep;
  size_t rung = 0;
  JobId job;
  double value = 0;
};

/// Ask the node of rank 0 for a rendezvous port.
struct SendPrepare {
  NodeId node;
  RunKey run;
};

/// Start a node's ranks.
struct SendStart {
  NodeId node;
  RunKey run;
  std::string job_name;
  JobKind kind = JobKind::kTraining;
  uint32_t first_rank = 0;
  uint32_t ranks = 0;  ///< on the node
  std::vector<uint32_t> devices;
  uint32_t world_size = 0;
  uint32_t node_count = 0;
  uint32_t node_rank = 0;
  std::string master_address;
  uint32_t master_port = 0;
  std::string checkpoint_dir;
  std::vector<std::string> resume_from;  ///< newest first
  Generation last_writer;
  int64_t grace_ms = 0;
};

/// End a node's ranks.
struct SendStop {
  NodeId node;
  RunKey run;
  bool checkpoint_first = false;
  int64_t grace_ms = 0;
};

/// The run's end is stored; the node may drop its folder.
struct SendForget {
  NodeId node;
  RunKey run;
};

/// End the node's stream; the agent says Hello again.
struct Disconnect {
  NodeId node;
  uint64_t session = 0;
  Error why;
};

using Action = std::variant<AppendEvent, AppendDecision, AppendRankExit, SaveCheckpoint, SaveRungResult,
                            SendPrepare, SendStart, SendStop, SendForget, Disconnect>;
using Actions = std::vector<Action>;

}  // namespace imgd
