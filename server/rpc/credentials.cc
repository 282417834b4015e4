#include "server/rpc/credentials.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <spdlog/spdlog.h>

#include <string>

#include "server/auth/methods.h"
#include "server/engine/refusals.h"

namespace imgd {
namespace {

/// How often the files of certificates are looked at.
constexpr unsigned int kRefreshSeconds = 5;

std::string_view ViewOf(grpc::string_ref text) { return {text.data(), text.size()}; }

/// The gate at gRPC's door. Writes nothing into the context, which all calls of a connection share.
class Doorkeeper final : public grpc::AuthMetadataProcessor {
 public:
  Doorkeeper(const Gate* gate, bool tls) : gate_(gate), tls_(tls) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const auto path = metadata.find(":path");
    const Scope scope = ScopeOfMethod(path == metadata.end() ? std::string_view() : ViewOf(path->second));
    if (scope == Scope::kAgent) return LetAgentIn(*context);
    const auto shown = metadata.find("authorization");
    const auto secret = shown == metadata.end() ? std::string_view() : BearerOf(ViewOf(shown->second));
    const Caller caller = gate_->LetIn(scope, secret);
    if (caller.refusal == Refusal::kNone) return grpc::Status::OK;
    // Of a status that is made here gRPC sends the code and the message.
    const Error why = WhyRefused(caller, scope);
    if (caller.refusal == Refusal::kWrongScope) return {grpc::StatusCode::PERMISSION_DENIED, why.ToString()};
    return {grpc::StatusCode::UNAUTHENTICATED, why.message};
  }

 private:
  /// Whose certificate it is, AgentService looks at. In plain text there is none, and any user of the machine
  /// could be a node that jobs are given to: so none is let in that way once people have to show who they
  /// are.
  grpc::Status LetAgentIn(const grpc::AuthContext& context) {
    if (!tls_) return gate_->IsOpen() ? grpc::Status::OK : RefusePlainAgent();
    if (!context.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME).empty()) return grpc::Status::OK;
    return {grpc::StatusCode::UNAUTHENTICATED,
            "an agent shows a certificate that imgd made for it: imgcli node join-token, and then imgagent "
            "--token-file FILE"};
  }

  grpc::Status RefusePlainAgent() {
    constexpr const char* kWhy =
        "somebody has a token of the scope 'admin', and since then imgd takes no agent in plain text: start "
        "imgd with "
        "--tls-on-loopback (tls: {on_loopback: true}), and the agent with https:// before imgd's address and "
        "a token "
        "(imgcli node join-token, imgagent --token-file FILE)";
    const auto text =
        refusals_.Note("", fmt::format("agent refused: {}", kWhy), std::chrono::steady_clock::now());
    if (text) spdlog::warn("msg=\"{}\"", *text);
    return {grpc::StatusCode::UNAUTHENTICATED, kWhy};
  }

  const Gate* gate_;
  bool tls_;
  Refusals refusals_{1};
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> TlsPort(const Authority& authority, const Gate* gate) {
  const auto files = std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      authority.key_path().native(), authority.certificate_path().native(), authority.ca_path().native(),
      kRefreshSeconds);
  grpc::experimental::TlsServerCredentialsOptions options(files);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  auto credentials = grpc::experimental::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<Doorkeeper>(gate, true));
  return credentials;
}

std::shared_ptr<grpc::ServerCredentials> LocalPort(const Gate* gate) {
  auto credentials = grpc::experimental::LocalServerCredentials(LOCAL_TCP);
  credentials->SetAuthMetadataProcessor(std::make_shared<Doorkeeper>(gate, false));
  return credentials;
}

}  // namespace imgd
