#include "server/auth/gate.h"

#include <strings.h>

#include <algorithm>

namespace imgd {

Gate::Gate(const Engine* engine, const Clock* clock, bool local, Scope open_until)
    : engine_(engine), clock_(clock), local_(local), open_until_(open_until) {}

Caller Gate::LetIn(Scope scope, std::string_view secret) const {
  if (scope == Scope::kOpen) return {};
  if (scope != Scope::kReport && secret.empty() && IsOpen()) return {};
  return Authorise(*engine_->View()->tokens, scope, secret, clock_->Wall());
}

bool Gate::IsOpen() const {
  if (!local_) return false;
  const auto tokens = engine_->View()->tokens;
  const auto closes = [this](const auto& token) { return Allows(token.second.scopes, open_until_); };
  return std::none_of(tokens->begin(), tokens->end(), closes);
}

Error WhyRefused(const Caller& caller, Scope scope) {
  const std::string_view name = NameOf(scope);
  Error error{.code = ErrorCode::kPermissionDenied,
              .hint = fmt::format("imgcli token create --scope {}", name)};
  switch (caller.refusal) {
    case Refusal::kWrongScope:
      error.message =
          fmt::format("the token '{}' is not good for this: the scope '{}' is needed", caller.token, name);
      break;
    case Refusal::kExpired:
      error.message = fmt::format("the token '{}' has expired", caller.token);
      break;
    case Refusal::kSessionOver:
      error.message = "this session is over: log in with a token again";
      break;
    default:
      error.message = "a token that imgd knows is needed, as \"Authorization: Bearer TOKEN\"";
  }
  return error;
}

std::string_view BearerOf(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size() ||
      ::strncasecmp(authorization.data(), kScheme.data(), kScheme.size()) != 0) {
    return {};
  }
  authorization.remove_prefix(kScheme.size());
  while (authorization.starts_with(' ')) authorization.remove_prefix(1);
  return authorization;
}

}  // namespace imgd
