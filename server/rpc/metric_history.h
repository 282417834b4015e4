#pragma once

#include "imgd/v1/job.pb.h"
#include "server/store/reader.h"

namespace imgd {

/// GetMetrics. Errors: as the contract has them.
Status FillMetrics(const v1::GetMetricsRequest& request, Reader& reader, v1::GetMetricsResponse& out);

}  // namespace imgd
