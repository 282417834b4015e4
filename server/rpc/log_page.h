#pragma once

#include <filesystem>

#include "imgd/v1/job.pb.h"
#include "server/store/log_format.h"
#include "server/store/reader.h"

namespace imgd {

/// As the contract has it.
v1::LogLine ToProto(const StoredLine& line, uint32_t rank, Generation generation);

/// Sorts by start and time. Each rank's lines have to be in their order and stay in it: where its clock was
/// put back they count as being of the newest time before.
void SortByTime(google::protobuf::RepeatedPtrField<v1::LogLine>& lines);

/// It may have to read much.
bool IsSearch(const v1::ListLogsRequest& request);

/// ListLogs. `folder` has the logs. Errors: kNotFound for the job and the start, kInvalidArgument for what
/// the request may not hold.
Status FillLogPage(const v1::ListLogsRequest& request, const std::filesystem::path& folder, Reader& reader,
                   v1::ListLogsResponse& out);

}  // namespace imgd
