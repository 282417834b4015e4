#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cli/app.h"
#include "cli/command_line.h"
#include "common/checkpoint/summary.h"

namespace imgd::cli {

/// A checkpoint as `-o json` has it.
nlohmann::ordered_json CheckpointJson(const CheckpointSummary& summary);

/// `checkpoints compare`.
void AddCompare(Command checkpoints, Context& context);

}  // namespace imgd::cli
