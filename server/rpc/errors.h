#pragma once

#include <grpcpp/support/status.h>

#include <vector>

#include "common/error.h"

namespace imgd {

/// The gRPC status of an error: its code, its sentence with the place, and imgd.v1.ErrorDetails as details.
grpc::Status ToStatus(const Error& error);
/// The same of several; the first is the message. `errors` is not empty.
grpc::Status ToStatus(const std::vector<Error>& errors);

}  // namespace imgd
