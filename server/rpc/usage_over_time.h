#pragma once

#include <span>

#include "common/clock.h"
#include "imgd/v1/usage.pb.h"
#include "server/store/reader.h"

namespace imgd {

/// Lays what each job took over the time of its starts, by their size, and adds it up by owner and stretch.
/// `starts` are by job; one that has not ended lasts until `now`.
void SpreadUsage(std::span<const StartUse> starts, WallTime now, const v1::ListUsageOverTimeRequest& request,
                 v1::ListUsageOverTimeResponse& out);

/// ListUsageOverTime. Errors: kInvalidArgument for the edges.
Status FillUsageOverTime(const v1::ListUsageOverTimeRequest& request, WallTime now, Reader& reader,
                         v1::ListUsageOverTimeResponse& out);

}  // namespace imgd
