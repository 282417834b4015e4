#pragma once

#include <grpcpp/support/status.h>

#include <vector>

#include "common/error.h"
#include "common/ids.h"

namespace imgd {

/// The gRPC status of an error: its code, its sentence with the place, and imgd.v1.ErrorDetails as details.
grpc::Status ToStatus(const Error& error);
/// The same of several; the first is the message. `errors` is not empty.
grpc::Status ToStatus(const std::vector<Error>& errors);

/// Of a call for which there is no room.
Error Busy();
Error NoJob(JobId id);

}  // namespace imgd
