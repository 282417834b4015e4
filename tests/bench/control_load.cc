#include "tests/bench/control_load.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cmath>

namespace imgd {

std::shared_ptr<grpc::ChannelCredentials> LoadCredentials() { return grpc::InsecureChannelCredentials(); }

std::shared_ptr<grpc::Channel> OwnChannel(const std::string& server) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // else equal channels share a connection
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(server, LoadCredentials(), arguments);
}

double Quantile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto place = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::clamp<size_t>(place, 1, values.size()) - 1];
}

}  // namespace imgd
