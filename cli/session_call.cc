#include "cli/session_call.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>

#include "cli/channel.h"
#include "cli/job_ref.h"
#include "imgd/v1/node.grpc.pb.h"
#include "imgd/v1/session.grpc.pb.h"
#include "proto/bidi_call.h"

namespace imgd::cli {
namespace {

/// Whether imgd does not let this token in any more: a session is broken off in the same way then as when
/// imgd ends, so that it has to be asked. Nothing where it does, or does not answer.
std::optional<Error> WhyShutOut(const std::shared_ptr<grpc::Channel>& channel, const ServerAddress& address) {
  constexpr auto kPatience = std::chrono::seconds(2);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  ShowToken(address, context);
  v1::GetNodeResponse answer;
  const auto status = v1::NodeService::NewStub(channel)->GetNode(&context, v1::GetNodeRequest(), &answer);
  if (status.error_code() != grpc::UNAUTHENTICATED) return std::nullopt;
  return Error{
      .code = ErrorCode::kPermissionDenied,
      .message = fmt::format("the session was ended, since imgd at {} ({}) lets this token in no more: "
                             "it was revoked, or has expired",
                             address.target, address.source),
      .hint = fmt::format("imgcli login {}, with another token", address.target)};
}

class GrpcSessionCall final : public SessionCall {
 public:
  GrpcSessionCall(const std::shared_ptr<grpc::Channel>& channel, v1::SessionService::Stub& stub,
                  const ServerAddress& address)
      : channel_(channel), address_(address), call_([&](grpc::ClientContext* context, auto* reactor) {
          ShowToken(address, *context);
          stub.async()->OpenSession(context, reactor);
        }) {}

  bool Write(const v1::OpenSessionRequest& request) override { return call_.Write(request); }
  bool Read(v1::OpenSessionResponse& response) override { return call_.Read(response); }
  void Cancel() override {
    cancelled_ = true;
    call_.Cancel();
  }
  Reply<void> Finish() override {
    const grpc::Status status = call_.Finish();
    if (status.ok()) return {};
    if (TellsOfOutage(status) && !cancelled_) {
      if (auto why = WhyShutOut(channel_, address_)) return tl::unexpected(Errors{std::move(*why)});
    }
    return tl::unexpected(ErrorsOf(status, address_, Duration::zero()));
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  const ServerAddress& address_;
  std::atomic<bool> cancelled_ = false;
  BidiCall<v1::OpenSessionRequest, v1::OpenSessionResponse> call_;
};

}  // namespace

struct SessionCaller::Parts {
  ServerAddress address;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::SessionService::Stub> stub;
};

SessionCaller::SessionCaller(const ServerAddress& address) : parts_(std::make_unique<Parts>()) {
  parts_->address = address;
  parts_->channel = MakeChannel(address);
  parts_->stub = v1::SessionService::NewStub(parts_->channel);
}

SessionCaller::~SessionCaller() = default;

std::unique_ptr<SessionCall> SessionCaller::Open() {
  return std::make_unique<GrpcSessionCall>(parts_->channel, *parts_->stub, parts_->address);
}

bool SessionCall::WriteFrame(v1::SessionFrame frame) {
  v1::OpenSessionRequest request;
  *request.mutable_frame() = std::move(frame);
  return Write(request);
}

Reply<v1::SessionOpened> BeginSession(SessionCall& call, v1::SessionBegin begin) {
  v1::OpenSessionRequest request;
  *request.mutable_begin() = std::move(begin);
  v1::OpenSessionResponse response;
  if (call.Write(request) && call.Read(response) && response.has_opened())
    return std::move(*response.mutable_opened());
  auto ended = call.Finish();
  if (!ended) return tl::unexpected(std::move(ended).error());
  return tl::unexpected(Errors{{.code = ErrorCode::kInternal, .message = "imgd began no session"}});
}

Reply<void> FindPlace(Client& client, const std::string& reference, std::optional<uint32_t> rank,
                      v1::SessionBegin& begin) {
  const bool number = !reference.empty() && std::all_of(reference.begin(), reference.end(),
                                                        [](char c) { return c >= '0' && c <= '9'; });
  if (!number && !rank) {
    const auto nodes = client.ListNodes();
    if (!nodes) return tl::unexpected(nodes.error());
    for (const auto& node : nodes->nodes()) {
      if (node.name() != reference) continue;
      begin.set_node(reference);
      return {};
    }
  }
  auto job = FindJob(client, reference);
  if (!job) {
    if (!number && !rank && job.error().front().code == ErrorCode::kNotFound)
      job.error().front().message = fmt::format("neither a node nor a job is named '{}'", reference);
    return tl::unexpected(std::move(job).error());
  }
  begin.mutable_rank()->set_job_id(*job);
  begin.mutable_rank()->set_rank(rank.value_or(0));
  return {};
}

int ExitCodeOfSession(Context& context, const v1::SessionEnd& end) {
  if (!end.error().empty()) context.Fail({{.code = ErrorCode::kFailedPrecondition, .message = end.error()}});
  if (end.signal() != 0) return static_cast<int>(128 + end.signal());
  if (end.exit_code() == 0 && !end.error().empty()) return ExitCodeOf(ErrorCode::kFailedPrecondition);
  return static_cast<int>(end.exit_code());
}

}  // namespace imgd::cli
