#include "tests/bench/control_load.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cmath>

namespace imgd {

namespace {

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address,
                                         const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // else equal channels share a connection
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

}  // namespace

std::shared_ptr<grpc::Channel> OwnChannel(const LoadTarget& target) {
  const auto server =
      grpc::SslCredentials({.pem_root_certs = target.ca, .pem_private_key = "", .pem_cert_chain = ""});
  return ChannelTo(target.address,
                   grpc::CompositeChannelCredentials(server, grpc::AccessTokenCredentials(target.token)));
}

std::shared_ptr<grpc::Channel> OwnChannel(const LoadTarget& target, const NodePass& pass) {
  return ChannelTo(target.address, grpc::SslCredentials({.pem_root_certs = target.ca,
                                                         .pem_private_key = pass.key,
                                                         .pem_cert_chain = pass.certificate}));
}

double Quantile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto place = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::clamp<size_t>(place, 1, values.size()) - 1];
}

}  // namespace imgd
