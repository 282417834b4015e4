#include <google/protobuf/empty.pb.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include "agent/channel.h"
#include "agent/doctor/facts.h"
#include "common/clock_skew.h"
#include "common/files.h"
#include "common/tls/pem.h"
#include "common/tls/probe.h"
#include "common/url.h"

namespace imgd::doctor {
namespace {

constexpr auto kPatience = std::chrono::seconds(3);

/// Nothing where imgd is spoken to by TLS and this node does not know its CA yet.
std::shared_ptr<grpc::ChannelCredentials> CredentialsFor(const Config& config, bool tls) {
  if (!tls) return grpc::InsecureChannelCredentials();
  const auto ca = ReadFile(config.state_dir / "ca.crt");
  return ca ? CredentialsOf({.ca = *ca}) : nullptr;
}

/// What imgd's certificate says against this clock: without a connection it is all that there is to go by.
std::string DoubtOf(const std::string& address) {
  auto target = tls::TargetOf(address);
  target.timeout = kPatience;
  const auto chain = tls::FetchChain(target);
  const auto facts =
      chain && !chain->empty() ? tls::FactsOf(chain->front()) : Result<tls::CertificateFacts>();
  const WallTime now = SystemClock().Wall();
  if (!facts || facts->not_after.micros == 0 || (facts->not_before <= now && now < facts->not_after))
    return "";
  return fmt::format("imgd's certificate is good from {} to {}, and by this machine's clock it is {}",
                     tls::DateOf(facts->not_before), tls::DateOf(facts->not_after), tls::DateOf(now));
}

}  // namespace

void GatherClock(const Config& config, NodeFacts& facts) {
  facts.clock.is_kept = IsClockKept();
  const GrpcAddress imgd = SplitGrpcAddress(config.server);
  const bool tls = imgd.is_said ? imgd.tls : config.tls;
  if (tls) facts.clock.doubt = DoubtOf(imgd.address);
  const auto credentials = CredentialsFor(config, tls);
  if (facts.imgd.addresses.empty() || !credentials) return;
  // Whether it is well needs no leave to ask; what it answers to an empty question does not matter here.
  const auto channel = MakeChannel(imgd.address, credentials);
  const grpc::internal::RpcMethod health("/grpc.health.v1.Health/Check",
                                         grpc::internal::RpcMethod::NORMAL_RPC);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  // Connected before the clock is looked at, so that the way there and back is short.
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + kPatience)) return;
  google::protobuf::Empty answer;
  const SystemClock clock;
  const WallTime asked = clock.Wall();
  const auto status =
      grpc::internal::BlockingUnaryCall<google::protobuf::MessageLite, google::protobuf::MessageLite>(
          channel.get(), health, &context, google::protobuf::Empty(), &answer);
  const WallTime came = clock.Wall();
  const auto& said = context.GetServerInitialMetadata();
  const auto found = said.find(kTimeMetadata);
  if (!status.ok() || found == said.end()) return;
  facts.clock.ahead = AheadOf({found->second.data(), found->second.size()}, asked, came);
}

}  // namespace imgd::doctor
