#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/server.h>

#include <condition_variable>
#include <mutex>
#include <shared_mutex>

#include "server/rpc/callers.h"
#include "server/web/api.h"

namespace imgd {

/// Asks the services of a gRPC server in this process, without a socket: those who come by HTTP get what gRPC
/// gives, by the same code. The server must outlive it.
class InProcessCaller final : public web::ApiCaller {
 public:
  /// `callers` tells the services whose token it was.
  InProcessCaller(grpc::Server& server, const Callers* callers);
  /// After Close(). Waits until the calls that were begun are over; where the server has been shut down, each
  /// is soon.
  ~InProcessCaller() override;
  /// Refuses calls from now on, so that none begins while the server is shut down.
  void Close();
  void Call(const google::protobuf::MethodDescriptor& method,
            std::unique_ptr<google::protobuf::Message> request, const std::string& token,
            std::function<void(Reply)> done) override;

 private:
  struct InFlight;

  const Callers* callers_;
  std::shared_mutex closing_;  // shared while a call begins
  bool closed_ = false;        // guarded by closing_
  std::mutex mutex_;
  std::condition_variable ended_;
  int in_flight_ = 0;  // guarded by mutex_
  grpc::TemplatedGenericStub<google::protobuf::Message, google::protobuf::Message> stub_;
};

}  // namespace imgd
