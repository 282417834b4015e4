#pragma once

#include "cli/commands.h"

namespace imgd::cli {

/// Adds `dataset serve` to the `dataset` command.
void AddServe(Command dataset, Context& context);

}  // namespace imgd::cli
