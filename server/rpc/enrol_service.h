#pragma once

#include "imgd/v1/enrol.grpc.pb.h"
#include "server/auth/authority.h"
#include "server/engine/engine.h"

namespace imgd {

/// EnrolService on the engine and the authority, which must outlive it.
class EnrolServiceImpl final : public v1::EnrolService::CallbackService {
 public:
  /// `authority`: null where gRPC is plain text, and then every call is refused.
  EnrolServiceImpl(Engine* engine, const Authority* authority, const Clock* clock)
      : engine_(engine), authority_(authority), clock_(clock) {}
  grpc::ServerUnaryReactor* Enrol(grpc::CallbackServerContext* context, const v1::EnrolRequest* request,
                                  v1::EnrolResponse* response) override;
  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context, const v1::RenewRequest* request,
                                  v1::RenewResponse* response) override;
  grpc::ServerUnaryReactor* CreateJoinToken(grpc::CallbackServerContext* context,
                                            const v1::CreateJoinTokenRequest* request,
                                            v1::CreateJoinTokenResponse* response) override;
  grpc::ServerUnaryReactor* ListJoinTokens(grpc::CallbackServerContext* context,
                                           const v1::ListJoinTokensRequest* request,
                                           v1::ListJoinTokensResponse* response) override;
  grpc::ServerUnaryReactor* RevokeJoinToken(grpc::CallbackServerContext* context,
                                            const v1::RevokeJoinTokenRequest* request,
                                            v1::RevokeJoinTokenResponse* response) override;
  grpc::ServerUnaryReactor* RevokeNode(grpc::CallbackServerContext* context,
                                       const v1::RevokeNodeRequest* request,
                                       v1::RevokeNodeResponse* response) override;

 private:
  template <typename Response>
  grpc::ServerUnaryReactor* Certify(grpc::CallbackServerContext* context, JoinOrder order,
                                    const std::string& request_pem, Response* response);

  Engine* engine_;
  const Authority* authority_;
  const Clock* clock_;
};

}  // namespace imgd
