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

int ApiStatusOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kFailedPrecondition:
      return 412;
    case ErrorCode::kResourceExhausted:
      return 429;
    case ErrorCode::kCancelled:
      return 499;
    default:
      return StatusOf(code);
  }
}

Response AnswerOf(int status, v1::ErrorBody body) {
  v1::ErrorAnswer answer;
  answer.set_code(body.code());
  answer.set_message(body.message());
  answer.set_hint(body.hint());
  *answer.mutable_error() = std::move(body);
  Response response{.status = status, .body = ToJson(answer)};
  if (status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"imgd\"");
  if (status == 429 || status == 503) response.headers.emplace_back("Retry-After", kComeAgainSeconds);
  return response;
}

}  // namespace

Response ErrorResponse(int status, std::string_view code, std::string_view message, std::string_view hint) {
  v1::ErrorBody body;
  body.set_code(std::string(code));
  body.set_message(std::string(message));
  body.set_hint(std::string(hint));
  return AnswerOf(status, std::move(body));
}

Response ApiErrorResponse(const std::vector<Error>& errors) {
  const Error& first = errors.front();
  v1::ErrorBody body;
  body.set_code(std::string(NameOf(first.code)));
  body.set_message(first.message);
  body.set_hint(first.hint);
  body.set_line(static_cast<uint32_t>(first.line));
  body.set_column(static_cast<uint32_t>(first.column));
  for (const auto& error : errors) {
    auto* detail = body.add_details();
    detail->set_message(error.message);
    detail->set_file(error.file);
    detail->set_line(static_cast<uint32_t>(error.line));
    detail->set_column(static_cast<uint32_t>(error.column));
    detail->set_hint(error.hint);
  }
  return AnswerOf(ApiStatusOf(first.code), std::move(body));
}

Response ErrorResponse(const Error& error) {
  return ErrorResponse(StatusOf(error.code), NameOf(error.code), error.message, error.hint);
}

}  // namespace imgd::web
