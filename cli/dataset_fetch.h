#pragma once

#include "cli/commands.h"

namespace imgd::cli {

/// Adds `dataset fetch` to the `dataset` command.
void AddFetch(Command dataset, Context& context);

}  // namespace imgd::cli
