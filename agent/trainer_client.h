#pragma once

#include "agent/run_dir.h"
#include "common/error.h"
#include "imgd/v1/trainer.pb.h"

namespace imgd {

/// Hands a command to a rank of this node by its control socket, and does not wait for the answer. Errors:
/// where the rank does not listen, or takes nothing now.
Status SendToTrainer(const RunDir& dir, uint32_t local_rank, const v1::TrainerCommand& command);

}  // namespace imgd
