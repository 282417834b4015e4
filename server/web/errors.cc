#include "server/web/errors.h"

#include "imgd/v1/report.pb.h"
#include "server/web/json.h"

namespace imgd::web {
namespace {

constexpr const char* kComeAgainSeconds = "2";

int StatusOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return 400;
    case ErrorCode::kPermissionDenied:
      return 403;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kAlreadyExists:
    case ErrorCode::kFailedPrecondition:
      return 409;
    case ErrorCode::kResourceExhausted:
    case ErrorCode::kUnavailable:
    case ErrorCode::kCancelled:
      return 503;
    case ErrorCode::kDeadlineExceeded:
      return 504;
    case ErrorCode::kDataLoss:
    case ErrorCode::kInternal:
      return 500;
  }
  return 500;
}

}  // namespace

Response ErrorResponse(int status, std::string_view code, std::string_view message, std::string_view hint) {
  v1::ErrorAnswer answer;
  answer.set_code(std::string(code));
  answer.set_message(std::string(message));
  answer.set_hint(std::string(hint));
  Response response{.status = status, .body = ToJson(answer)};
  if (status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"imgd\"");
  if (status == 429 || status == 503) response.headers.emplace_back("Retry-After", kComeAgainSeconds);
  return response;
}

Response ErrorResponse(const Error& error) {
  return ErrorResponse(StatusOf(error.code), NameOf(error.code), error.message, error.hint);
}

}  // namespace imgd::web
