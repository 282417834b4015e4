#pragma once

#include "imgd/v1/job.pb.h"
#include "server/store/reader.h"

/// Of jobs that others hold back: what is the matter with these.
namespace imgd {

/// Adds to the reason of one that waits for other jobs, or for its turn in its sweep, what keeps those: jobs
/// that are paused or could never start, members whose turn it is and that wait themselves. The reason that
/// is stored is of when it began to wait. Errors: the reader's.
Status ExplainWhoHoldsItBack(const JobRecord& record, Reader& reader, v1::Job& out);

}  // namespace imgd
