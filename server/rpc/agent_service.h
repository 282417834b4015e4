#pragma once

#include "imgd/v1/agent.grpc.pb.h"
#include "server/engine/engine.h"

namespace imgd {

/// AgentService on the engine, which must outlive it. Messages of one agent go to the engine one at a time;
/// what is sent to one waits in a bounded outbox of its stream.
class AgentServiceImpl final : public v1::AgentService::CallbackService {
 public:
  explicit AgentServiceImpl(Engine* engine) : engine_(engine) {}
  grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>* Connect(
      grpc::CallbackServerContext* context) override;

 private:
  Engine* engine_;
};

}  // namespace imgd
