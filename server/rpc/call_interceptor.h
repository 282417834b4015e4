#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "server/rpc/call_times.h"

namespace imgd {

/// Has gRPC's server time each call that it answers. `times` must outlive the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> TimingOf(CallTimes* times);

}  // namespace imgd
