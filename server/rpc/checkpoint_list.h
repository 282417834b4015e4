#pragma once

#include <optional>
#include <string>

#include "common/error.h"
#include "imgd/v1/job.pb.h"
#include "server/core/types.h"
#include "server/store/reader.h"

/// The checkpoints that a job's ranks reported.
namespace imgd {

/// Looks into their folders, and so may wait for a disk. How good they are and why they stay is read there;
/// of those that imgd does not see it is as the job reported it. Errors: kNotFound where there is no such
/// job; the reader's.
Status FillCheckpoints(JobId id, Reader& reader, v1::ListCheckpointsResponse& out);

/// What was reported of the one with this CheckpointName(), however many came after it; nothing where none
/// was. Errors: the reader's.
Result<std::optional<v1::CheckpointWritten>> FindCheckpoint(JobId id, const std::string& name,
                                                            Reader& reader);

}  // namespace imgd
