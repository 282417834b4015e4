#pragma once

#include <functional>
#include <optional>

#include "cli/app.h"
#include "cli/output.h"

namespace imgd::cli {

/// How a job is followed.
struct WatchOptions {
  std::optional<uint64_t> from_event;  ///< show the events from this number on; else only new ones
  OutputFormat format = OutputFormat::kTable;
  bool no_follow = false;  ///< end after the events that are there
  bool quiet = false;      ///< show nothing until the end
  bool ending = false;     ///< its end was asked for, as whoever breaks off is told
};

/// Follows the job until it has ended, over restarts of the daemon, and returns the exit code: that of the
/// job's final state, of the failure, or 130 after Ctrl-C.
int FollowJob(Context& context, Client& client, uint64_t id, const WatchOptions& options);

/// Asks for the job until the daemon answers. `announce` is called once if the first try finds it away. Gives
/// up after --timeout where that is given; errors other than an outage end it at once.
Reply<v1::GetJobResponse> AwaitDaemon(Context& context, Client& client, uint64_t id,
                                      const std::function<void(const Errors&)>& announce);

/// What to tell somebody who leaves a job running: "imgcli cancel 12 ends it", or where it was started by
/// hand.
std::string HowToEnd(const Context& context, const v1::Job& job);

}  // namespace imgd::cli
