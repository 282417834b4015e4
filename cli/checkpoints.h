#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cli/app.h"
#include "cli/command_line.h"
#include "common/checkpoint/summary.h"

namespace imgd::cli {

/// A checkpoint as `-o json` has it.
nlohmann::ordered_json CheckpointJson(const CheckpointSummary& summary);

/// Asks whether to delete so many checkpoints, unless `yes`. 0: yes; else the exit code of what was said.
int MayDelete(Context& context, size_t count, bool yes);

/// `checkpoints compare` and `checkpoints prune`.
void AddCompare(Command checkpoints, Context& context);
void AddPrune(Command checkpoints, Context& context);

}  // namespace imgd::cli
