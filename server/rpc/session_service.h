#pragma once

#include "imgd/v1/session.grpc.pb.h"
#include "server/engine/engine.h"
#include "server/rpc/callers.h"
#include "server/rpc/session_relay.h"

namespace imgd {

/// SessionService on the engine and the callers, which must outlive it.
class SessionServiceImpl final : public v1::SessionService::CallbackService {
 public:
  /// `tls`: an agent's stream has to come with the certificate of the session's node.
  SessionServiceImpl(Engine* engine, const Callers* callers, bool tls)
      : engine_(engine), callers_(callers), tls_(tls), relay_(engine) {}

  grpc::ServerBidiReactor<v1::OpenSessionRequest, v1::OpenSessionResponse>* OpenSession(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<v1::ServeSessionRequest, v1::ServeSessionResponse>* ServeSession(
      grpc::CallbackServerContext* context) override;

  SessionRelay& relay() { return relay_; }

 private:
  Engine* engine_;
  const Callers* callers_;
  bool tls_;
  SessionRelay relay_;
};

}  // namespace imgd
