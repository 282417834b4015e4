#pragma once

#include "cli/frame.h"
#include "cli/top_data.h"
#include "cli/top_state.h"

namespace imgd::cli {

/// The least that `imgcli top` draws on.
inline constexpr int kTopColumns = 80;
inline constexpr int kTopLines = 24;

/// The whole screen at `now_us` (microseconds since 1970 UTC): exactly as many lines as it has.
Frame TopFrame(const TopData& data, const TopState& state, int64_t now_us, const Look& look);

/// The cluster as one picture of any height, with all that there is, for what is no terminal.
Frame TopSnapshot(const TopData& data, int64_t now_us, const Look& look);

// Parts of the above.

/// That the daemon is away, or something is wrong with it; no line where nothing is.
Frame TopTrouble(const TopData& data);

/// Two lines, and those of TopTrouble.
Frame TopHeader(const TopData& data, int64_t now_us, const Look& look);

/// The nodes in `look.height` lines (0: as many as it takes): a line of bars for each device, or where that
/// is too much a line for each node.
Frame TopNodes(const TopData& data, int first_row, const Look& look);

/// The table of jobs in `look.height` lines (0: as many as it takes), around the chosen one.
Frame TopJobs(const TopData& data, const TopState& state, const Look& look);

/// The open job in `look.height` lines.
Frame TopJobView(const TopData& data, const TopState& state, int64_t now_us, const Look& look);

/// The last line: keys, or what is asked.
FrameLine TopFooter(const TopData& data, const TopState& state, int64_t now_us);

}  // namespace imgd::cli
