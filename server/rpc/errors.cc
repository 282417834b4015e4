#include "server/rpc/errors.h"

#include "imgd/v1/common.pb.h"

namespace imgd {
namespace {

grpc::StatusCode CodeOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case ErrorCode::kNotFound:
      return grpc::StatusCode::NOT_FOUND;
    case ErrorCode::kAlreadyExists:
      return grpc::StatusCode::ALREADY_EXISTS;
    case ErrorCode::kFailedPrecondition:
      return grpc::StatusCode::FAILED_PRECONDITION;
    case ErrorCode::kPermissionDenied:
      return grpc::StatusCode::PERMISSION_DENIED;
    case ErrorCode::kResourceExhausted:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case ErrorCode::kUnavailable:
      return grpc::StatusCode::UNAVAILABLE;
    case ErrorCode::kDeadlineExceeded:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    case ErrorCode::kDataLoss:
      return grpc::StatusCode::DATA_LOSS;
    case ErrorCode::kCancelled:
      return grpc::StatusCode::CANCELLED;
    case ErrorCode::kInternal:
      return grpc::StatusCode::INTERNAL;
  }
  return grpc::StatusCode::INTERNAL;
}

}  // namespace

grpc::Status ToStatus(const std::vector<Error>& errors) {
  v1::ErrorDetails details;
  for (const auto& error : errors) {
    auto* detail = details.add_errors();
    detail->set_message(error.message);
    detail->set_file(error.file);
    detail->set_line(static_cast<uint32_t>(error.line));
    detail->set_column(static_cast<uint32_t>(error.column));
    detail->set_hint(error.hint);
  }
  return {CodeOf(errors.front().code), errors.front().ToString(), details.SerializeAsString()};
}

grpc::Status ToStatus(const Error& error) { return ToStatus(std::vector<Error>{error}); }

Error Busy() {
  return {.code = ErrorCode::kResourceExhausted, .message = "too many requests wait already; try again"};
}

Error NoJob(JobId id) {
  return {.code = ErrorCode::kNotFound, .message = fmt::format("there is no job {}", id)};
}

}  // namespace imgd
