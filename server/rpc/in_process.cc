#include "server/rpc/in_process.h"

#include <grpcpp/client_context.h>

#include <chrono>
#include <utility>

#include "imgd/v1/common.pb.h"

namespace imgd {
namespace {

using google::protobuf::Message;

constexpr auto kLongestCall = std::chrono::seconds(60);
constexpr int kMostAnswerBytes = 64 << 20;

ErrorCode CodeOfStatus(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::OUT_OF_RANGE:
      return ErrorCode::kInvalidArgument;
    case grpc::StatusCode::NOT_FOUND:
      return ErrorCode::kNotFound;
    case grpc::StatusCode::ALREADY_EXISTS:
      return ErrorCode::kAlreadyExists;
    case grpc::StatusCode::FAILED_PRECONDITION:
      return ErrorCode::kFailedPrecondition;
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
      return ErrorCode::kPermissionDenied;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return ErrorCode::kResourceExhausted;
    case grpc::StatusCode::UNAVAILABLE:
      return ErrorCode::kUnavailable;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return ErrorCode::kDeadlineExceeded;
    case grpc::StatusCode::DATA_LOSS:
      return ErrorCode::kDataLoss;
    case grpc::StatusCode::CANCELLED:
      return ErrorCode::kCancelled;
    default:
      return ErrorCode::kInternal;
  }
}

/// What ToStatus() (server/rpc/errors.h) made of them.
std::vector<Error> ErrorsOf(const grpc::Status& status) {
  const ErrorCode code = CodeOfStatus(status.error_code());
  std::vector<Error> out;
  v1::ErrorDetails details;
  if (details.ParseFromString(status.error_details())) {
    for (const auto& detail : details.errors()) {
      out.push_back({.code = code,
                     .message = detail.message(),
                     .file = detail.file(),
                     .line = static_cast<int>(detail.line()),
                     .column = static_cast<int>(detail.column()),
                     .hint = detail.hint()});
    }
  }
  if (out.empty()) out.push_back({.code = code, .message = status.error_message()});
  return out;
}

/// What has to live until the answer is there.
struct PendingCall {
  std::unique_ptr<grpc::ClientContext> context = std::make_unique<grpc::ClientContext>();
  std::unique_ptr<Message> request;
  std::unique_ptr<Message> response;
  std::function<void(web::ApiCaller::Reply)> done;
};

std::shared_ptr<grpc::Channel> ChannelTo(grpc::Server& server) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMostAnswerBytes);
  return server.InProcessChannel(arguments);
}

}  // namespace

InProcessCaller::InProcessCaller(grpc::Server& server, const Callers* callers)
    : callers_(callers), stub_(ChannelTo(server)) {}

InProcessCaller::~InProcessCaller() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return in_flight_ == 0; });
}

void InProcessCaller::Close() {
  const std::unique_lock lock(closing_);
  closed_ = true;
}

/// One more call, until it goes; however its answer's taker ends.
struct InProcessCaller::InFlight {
  explicit InFlight(InProcessCaller* of) : caller(of) {
    const std::lock_guard lock(caller->mutex_);
    ++caller->in_flight_;
  }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  ~InFlight() {
    const std::lock_guard lock(caller->mutex_);
    if (--caller->in_flight_ == 0) caller->ended_.notify_all();
  }
  InProcessCaller* caller;
};

void InProcessCaller::Call(const google::protobuf::MethodDescriptor& method, std::unique_ptr<Message> request,
                           const std::string& token, std::function<void(Reply)> done) {
  const auto call = std::make_shared<PendingCall>();
  call->request = std::move(request);
  call->response.reset(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(method.output_type())->New());
  if (!token.empty()) {
    const auto [key, value] = callers_->MarkOf(token);
    call->context->AddMetadata(key, value);
  }
  call->context->set_deadline(std::chrono::system_clock::now() + kLongestCall);
  std::shared_lock beginning(closing_);
  if (closed_) {
    beginning.unlock();
    done(tl::unexpected(
        std::vector<Error>{{.code = ErrorCode::kUnavailable, .message = "the daemon is ending"}}));
    return;
  }
  call->done = std::move(done);
  const std::string path = "/" + method.service()->full_name() + "/" + method.name();
  stub_.UnaryCall(call->context.get(), path, {}, call->request.get(), call->response.get(),
                  [call, in_flight = std::make_shared<InFlight>(this)](const grpc::Status& status) mutable {
                    const auto last = std::move(in_flight);  // goes after all below, which may throw
                    Reply reply =
                        status.ok() ? Reply(std::move(call->response)) : tl::unexpected(ErrorsOf(status));
                    // It holds the channel. The last to let go of channels and servers ends gRPC's threads
                    // and awaits them, so that must not be one of them: this one.
                    call->context.reset();
                    std::exchange(call->done, nullptr)(std::move(reply));
                  });
}

}  // namespace imgd
