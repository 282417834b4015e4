#pragma once

#include <string>

#include "cli/app.h"
#include "cli/client.h"

namespace imgd::cli {

/// The sweep that the number of one of its jobs, or its name (then the newest of that name), means. Errors:
/// kNotFound.
Reply<v1::Sweep> FindSweep(Client& client, const std::string& reference);

/// "sweep 17 (rn18)".
std::string SweepTitle(const v1::Sweep& sweep);

/// Tells how far the sweep's jobs are until all have ended, over restarts of the daemon, then shows them.
/// Returns 0 when all completed, else the exit code of the first that did not, that of an outage longer than
/// the timeout, or 130 after Ctrl-C. With `ending`, of one whose end was asked for, it shows none of this.
int FollowSweep(Context& context, Client& client, const v1::Sweep& sweep, bool ending);

}  // namespace imgd::cli
