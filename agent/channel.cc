#include "agent/channel.h"

namespace imgd {
namespace {

constexpr int kMaxMessageBytes = 16 << 20;

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& server,
                                           const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // the backoff between attempts is ours alone
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Sets TCP_USER_TIMEOUT: heartbeats that nobody's kernel confirms for so long end the connection. The pings
  // themselves are too rare for a daemon to take offence at.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 600'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel(server, credentials, arguments);
}

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const NodeTls& shown) {
  return grpc::SslCredentials(
      {.pem_root_certs = shown.ca, .pem_private_key = shown.key, .pem_cert_chain = shown.certificate});
}

Result<std::shared_ptr<grpc::Channel>> ChannelToImgd(const std::string& server, NodeKey* node_key) {
  if (node_key == nullptr) return MakeChannel(server, grpc::InsecureChannelCredentials());
  IMGD_ASSIGN(const NodeTls shown, node_key->Get());
  return MakeChannel(server, CredentialsOf(shown));
}

}  // namespace imgd
