#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/server.h>

#include "server/web/api.h"

namespace imgd {

/// Asks the services of a gRPC server in this process, without a socket: those who come by HTTP get what gRPC
/// gives, by the same code. The server must outlive it.
class InProcessCaller final : public web::ApiCaller {
 public:
  explicit InProcessCaller(grpc::Server& server);
  void Call(const google::protobuf::MethodDescriptor& method,
            std::unique_ptr<google::protobuf::Message> request, std::function<void(Reply)> done) override;

 private:
  grpc::TemplatedGenericStub<google::protobuf::Message, google::protobuf::Message> stub_;
};

}  // namespace imgd
