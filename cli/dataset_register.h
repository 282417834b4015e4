#pragma once

#include "cli/commands.h"

namespace imgd::cli {

/// Adds `register`, `list`, `show` and `forget` to `imgcli dataset`: the names that the daemon keeps for data
/// sets.
void AddRegister(Command dataset, Context& context);
/// Adds `show` alone.
void AddShowDataset(Command dataset, Context& context);

}  // namespace imgd::cli
