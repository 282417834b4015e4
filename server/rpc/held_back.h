#pragma once

#include "imgd/v1/job.pb.h"
#include "server/core/scheduler.h"
#include "server/store/reader.h"

/// Of jobs that others hold back: what is the matter with these.
namespace imgd {

/// Adds to the reason of a queued job what keeps those that it waits for: other jobs that are paused or could
/// never start, members of its sweep whose turn it is and that wait themselves, and who has the devices of
/// its quotas. A reason that is stored is of when it began to wait. `cluster`: as it is now. Errors: the
/// reader's.
Status ExplainWhoHoldsItBack(const JobRecord& record, const Snapshot& cluster, Reader& reader, v1::Job& out);

}  // namespace imgd
