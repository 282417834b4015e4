#include "server/rpc/token_service.h"

#include "server/auth/tokens.h"
#include "server/rpc/errors.h"
#include "server/rpc/limits.h"

namespace imgd {
namespace {

v1::Token ToProto(const TokenRecord& record) {
  v1::Token out;
  out.set_name(record.name);
  for (const auto& scope : record.scopes) out.add_scopes(scope);
  out.set_owner(record.owner);
  out.set_created_us(record.created.micros);
  out.set_expires_us(record.expires.micros);
  return out;
}

/// The order for a new token, and the token itself.
Result<std::pair<TokenOrder, std::string>> OrderOf(const v1::CreateTokenRequest& request) {
  IMGD_TRY(CheckLimits(request));
  if (request.scopes().empty()) return Fail(ErrorCode::kInvalidArgument, "scopes: at least one is needed");
  for (const auto& scope : request.scopes()) IMGD_TRY(CheckScopeName(scope));
  IMGD_ASSIGN(std::string secret, NewSecret());
  TokenOrder order{.record = {.name = request.name(),
                              .hash = HashOf(secret),
                              .owner = request.owner().empty() ? "unknown" : request.owner(),
                              .scopes = {request.scopes().begin(), request.scopes().end()}},
                   .ttl_ms = static_cast<int64_t>(request.ttl_ms()),
                   .actor = request.actor().empty() ? request.owner() : request.actor()};
  // Of the hash, so that it says nothing of the token.
  if (order.record.name.empty()) {
    order.record.name = fmt::format("{}-{}", request.scopes(0), order.record.hash.substr(0, 8));
  }
  IMGD_TRY(CheckTokenName(order.record.name));
  return std::pair(std::move(order), std::move(secret));
}

}  // namespace

grpc::ServerUnaryReactor* TokenServiceImpl::CreateToken(grpc::CallbackServerContext* context,
                                                        const v1::CreateTokenRequest* request,
                                                        v1::CreateTokenResponse* response) {
  auto* reactor = context->DefaultReactor();
  auto order = OrderOf(*request);
  if (!order) {
    reactor->Finish(ToStatus(order.error()));
    return reactor;
  }
  engine_->ChangeToken(std::move(order->first), [secret = std::move(order->second), response,
                                                 reactor](const Result<TokenRecord>& answer) {
    if (answer) {
      *response->mutable_token() = ToProto(*answer);
      response->set_secret(secret);
    }
    reactor->Finish(answer ? grpc::Status::OK : ToStatus(answer.error()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* TokenServiceImpl::ListTokens(grpc::CallbackServerContext* context,
                                                       const v1::ListTokensRequest*,
                                                       v1::ListTokensResponse* response) {
  auto* reactor = context->DefaultReactor();
  for (const auto& [name, record] : *engine_->View()->tokens) *response->add_tokens() = ToProto(record);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* TokenServiceImpl::RevokeToken(grpc::CallbackServerContext* context,
                                                        const v1::RevokeTokenRequest* request,
                                                        v1::RevokeTokenResponse*) {
  auto* reactor = context->DefaultReactor();
  TokenOrder order{.record = {.name = request->name()}, .remove = true, .actor = request->actor()};
  engine_->ChangeToken(std::move(order), [this, reactor](const Result<TokenRecord>& answer) {
    if (answer) revoked_(answer->name);
    reactor->Finish(answer ? grpc::Status::OK : ToStatus(answer.error()));
  });
  return reactor;
}

}  // namespace imgd
