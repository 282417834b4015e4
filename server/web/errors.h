#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "server/web/router.h"

namespace imgd::web {

/// An ErrorAnswer (proto/imgd/v1/report.proto) in JSON. 401 says which scheme it wants, 429 and 503 when to
/// come again.
Response ErrorResponse(int status, std::string_view code, std::string_view message,
                       std::string_view hint = "");
/// With the status that goes with the error's code.
Response ErrorResponse(const Error& error);
/// Of the API that is gRPC's too: 412 for kFailedPrecondition, 429 for kResourceExhausted, 499 for
/// kCancelled. The first error is the message; all are its details. `errors` is not empty.
Response ApiErrorResponse(const std::vector<Error>& errors);

}  // namespace imgd::web
