#pragma once

#include "cli/commands.h"

namespace imgd::cli {

/// Adds `dataset convert` to the `dataset` command.
void AddConvert(Command dataset, Context& context);

}  // namespace imgd::cli
