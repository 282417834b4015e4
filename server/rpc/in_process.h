#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/server.h>

#include "server/rpc/callers.h"
#include "server/web/api.h"

namespace imgd {

/// Asks the services of a gRPC server in this process, without a socket: those who come by HTTP get what gRPC
/// gives, by the same code. The server must outlive it.
class InProcessCaller final : public web::ApiCaller {
 public:
  /// `callers` tells the services whose token it was.
  InProcessCaller(grpc::Server& server, const Callers* callers);
  void Call(const google::protobuf::MethodDescriptor& method,
            std::unique_ptr<google::protobuf::Message> request, const std::string& token,
            std::function<void(Reply)> done) override;

 private:
  const Callers* callers_;
  grpc::TemplatedGenericStub<google::protobuf::Message, google::protobuf::Message> stub_;
};

}  // namespace imgd
