#pragma once

#include <string>
#include <vector>

#include "server/core/scheduler.h"
#include "server/core/types.h"

namespace imgd {

/// Who asks why it waits.
struct Waiting {
  uint32_t nodes = 1;
  uint32_t ranks_per_node = 1;
  ReasonCode code = ReasonCode::kNone;
  size_t position = 0;      ///< in the queue, from 1
  std::string folder = {};  ///< as in QueuedJob, like what follows
  NodeId resumes_with = {};
};
Waiting WaitingOf(const QueuedJob& job, ReasonCode code, size_t position);

/// Why a queued job waits and what it waits for, in a sentence: "needs 2 nodes with 1 free device each; 1 is
/// free; job 3 (rn50-a) holds gpu-2; position 1 in the queue".
std::string ExplainWait(const Snapshot& cluster, const Waiting& job, JobId blocker);

/// Why a node takes nothing new; empty when it does.
std::string ExplainNode(const NodeRecord& node);

}  // namespace imgd
