#include "cli/channel.h"

#include <cstdlib>

#include "cli/format.h"
#include "common/doctor/reach.h"
#include "common/version.h"
#include "imgd/v1/common.pb.h"

namespace imgd::cli {
namespace {

using namespace std::chrono_literals;

ErrorCode CodeOf(grpc::StatusCode code) {
  switch (code) {
    case grpc::INVALID_ARGUMENT:
    case grpc::OUT_OF_RANGE:
      return ErrorCode::kInvalidArgument;
    case grpc::NOT_FOUND:
      return ErrorCode::kNotFound;
    case grpc::ALREADY_EXISTS:
      return ErrorCode::kAlreadyExists;
    case grpc::FAILED_PRECONDITION:
    case grpc::ABORTED:
      return ErrorCode::kFailedPrecondition;
    case grpc::PERMISSION_DENIED:
    case grpc::UNAUTHENTICATED:
      return ErrorCode::kPermissionDenied;
    case grpc::RESOURCE_EXHAUSTED:
      return ErrorCode::kResourceExhausted;
    case grpc::UNAVAILABLE:
      return ErrorCode::kUnavailable;
    case grpc::DEADLINE_EXCEEDED:
      return ErrorCode::kDeadlineExceeded;
    case grpc::CANCELLED:
      return ErrorCode::kCancelled;
    default:
      return ErrorCode::kInternal;
  }
}

/// What the operating system said, out of gRPC's account of it.
std::string CauseOf(const std::string& message) {
  if (message.find("DNS resolution failed") != std::string::npos) return "its name is not known";
  const auto colon = message.rfind(": ");
  std::string cause = colon == std::string::npos ? message : message.substr(colon + 2);
  constexpr std::string_view kCall = "recvmsg:";
  if (cause.starts_with(kCall)) cause.erase(0, kCall.size());
  return cause;
}

/// Where gRPC says no more than that it could not connect: what kept it from doing so.
std::optional<Error> WhyNoConnection(const grpc::Status& status, const ServerAddress& address) {
  if (status.error_code() != grpc::UNAVAILABLE) return std::nullopt;
  if (address.tls) {
    auto why = tls::WhyNoTls(ProbeOf(address), SystemClock());
    if (why && why->code == ErrorCode::kPermissionDenied && address.ca.empty())
      why->hint = fmt::format("imgcli login {} makes it known here", address.target);
    if (why && why->code != ErrorCode::kUnavailable) return why;
    return std::nullopt;
  }
  if (status.error_message().find("Connection refused") != std::string::npos) return std::nullopt;
  if (doctor::TryToReach(address.target, 1s).outcome != doctor::Reach::Outcome::kAnswersTls)
    return std::nullopt;
  return Error{.code = ErrorCode::kFailedPrecondition,
               .message = fmt::format("imgd at {} ({}) wants TLS", address.target, address.source),
               .hint = fmt::format("imgcli login {}, or https:// before the address", address.target)};
}

Error OutageError(const grpc::Status& status, const ServerAddress& address, Duration waited) {
  Error error{.code = ErrorCode::kUnavailable};
  error.hint = "check that imgd runs there, that the address is right and that no firewall is between";
  const std::string imgd = fmt::format("imgd at {} ({})", address.target, address.source);
  if (status.error_code() == grpc::UNAVAILABLE) {
    error.message = fmt::format("cannot reach {}: {}", imgd, CauseOf(status.error_message()));
  } else if (status.error_code() == grpc::DEADLINE_EXCEEDED) {
    error.code = ErrorCode::kDeadlineExceeded;
    error.message =
        fmt::format("{} did not answer within {:.3g}s", imgd, std::chrono::duration<double>(waited).count());
  } else {
    error.message = fmt::format("{} broke off the call", imgd);
    error.hint = "it is probably being restarted";
  }
  return error;
}

}  // namespace

tls::ProbeTarget ProbeOf(const ServerAddress& address) {
  auto target = tls::TargetOf(address.target);
  target.timeout = 2s;
  target.ca = address.ca;
  return target;
}

/// The daemon was not there, or went away during the call: one that shuts down cancels what it has begun.
bool TellsOfOutage(const grpc::Status& status) {
  const auto code = status.error_code();
  return code == grpc::UNAVAILABLE || code == grpc::DEADLINE_EXCEEDED || code == grpc::CANCELLED ||
         (code == grpc::UNKNOWN && status.error_message() == "Stream removed");
}

Errors ErrorsOf(const grpc::Status& status, const ServerAddress& address, Duration waited) {
  Errors errors;
  const ErrorCode code = CodeOf(status.error_code());
  v1::ErrorDetails details;
  if (!status.error_details().empty() && details.ParseFromString(status.error_details())) {
    for (const auto& detail : details.errors()) {
      errors.push_back({.code = code,
                        .message = detail.message(),
                        .file = detail.file(),
                        .line = static_cast<int>(detail.line()),
                        .column = static_cast<int>(detail.column()),
                        .hint = detail.hint()});
    }
  }
  if (!errors.empty()) return errors;
  if (TellsOfOutage(status)) {
    if (auto why = WhyNoConnection(status, address)) return {std::move(*why)};
    return {OutageError(status, address, waited)};
  }
  Error error{.code = code, .message = status.error_message()};
  if (status.error_code() == grpc::UNAUTHENTICATED) {
    error.message = fmt::format("imgd at {} ({}) asks who you are: {}", address.target, address.source,
                                status.error_message());
    error.hint = fmt::format("imgcli login {}, or IMGD_TOKEN_FILE", address.target);
  }
  if (status.error_code() == grpc::UNIMPLEMENTED) {
    error.message = fmt::format("imgd at {} ({}) does not know this call", address.target, address.source);
    error.hint = "is it an imgd, and as new as this imgcli?";
  }
  if (error.message.empty()) error.message = fmt::format("imgd answered {} without a word", NameOf(code));
  return {std::move(error)};
}

std::shared_ptr<grpc::Channel> MakeChannel(const ServerAddress& address) {
  // Its own messages say the same as ours, worse.
  setenv("GRPC_VERBOSITY", "NONE", 0);
  grpc::ChannelArguments arguments;
  arguments.SetUserAgentPrefix(fmt::format("imgcli/{}", kVersion));
  // The daemon is a neighbour; http_proxy is meant for other things.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Channels share what is connected to one address, and with it the pause after a connect that failed; a new
  // channel of ours is to begin without one (see Client::NoteOutage).
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // So that a daemon that is no longer there is noticed while one that takes long is waited for.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 5'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  arguments.SetMaxReceiveMessageSize(64 << 20);
  const auto credentials =
      address.tls
          ? grpc::SslCredentials({.pem_root_certs = address.ca, .pem_private_key = "", .pem_cert_chain = ""})
          : grpc::InsecureChannelCredentials();
  return grpc::CreateCustomChannel(address.target, credentials, arguments);
}

void ShowToken(const ServerAddress& address, grpc::ClientContext& context) {
  if (!address.token.empty()) context.AddMetadata("authorization", "Bearer " + address.token);
}

}  // namespace imgd::cli
