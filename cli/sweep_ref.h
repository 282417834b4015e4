#pragma once

#include <string>

#include "cli/client.h"

namespace imgd::cli {

/// The sweep that the number of one of its jobs, or its name (then the newest of that name), means. Errors:
/// kNotFound.
Reply<v1::Sweep> FindSweep(Client& client, const std::string& reference);

/// "sweep 17 (rn18)".
std::string SweepTitle(const v1::Sweep& sweep);

}  // namespace imgd::cli
