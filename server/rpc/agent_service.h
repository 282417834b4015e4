#pragma once

#include "imgd/v1/agent.grpc.pb.h"
#include "server/engine/engine.h"

namespace imgd {

/// AgentService on the engine, which must outlive it. Messages of one agent go to the engine one at a time;
/// what is sent to one waits in a bounded outbox of its stream.
class AgentServiceImpl final : public v1::AgentService::CallbackService {
 public:
  /// `tls`: each stream has to come with a certificate for the node that its Hello names.
  AgentServiceImpl(Engine* engine, bool tls) : engine_(engine), tls_(tls) {}
  grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>* Connect(
      grpc::CallbackServerContext* context) override;

 private:
  Engine* engine_;
  bool tls_;
  Refusals refusals_{50};
};

/// The node that the connection's certificate is for. Errors: kPermissionDenied.
Result<std::string> CertifiedNode(const grpc::CallbackServerContext& context, const Engine& engine);

}  // namespace imgd
