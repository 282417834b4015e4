#pragma once

#include <functional>
#include <string>
#include <utility>

#include "imgd/v1/token.grpc.pb.h"
#include "server/engine/engine.h"

namespace imgd {

/// TokenService on the engine, which must outlive it.
class TokenServiceImpl final : public v1::TokenService::CallbackService {
 public:
  /// `revoked` is called with each token that was taken back.
  TokenServiceImpl(Engine* engine, std::function<void(const std::string&)> revoked)
      : engine_(engine), revoked_(std::move(revoked)) {}
  grpc::ServerUnaryReactor* CreateToken(grpc::CallbackServerContext* context,
                                        const v1::CreateTokenRequest* request,
                                        v1::CreateTokenResponse* response) override;
  grpc::ServerUnaryReactor* ListTokens(grpc::CallbackServerContext* context,
                                       const v1::ListTokensRequest* request,
                                       v1::ListTokensResponse* response) override;
  grpc::ServerUnaryReactor* RevokeToken(grpc::CallbackServerContext* context,
                                        const v1::RevokeTokenRequest* request,
                                        v1::RevokeTokenResponse* response) override;

 private:
  Engine* engine_;
  std::function<void(const std::string&)> revoked_;
};

}  // namespace imgd
