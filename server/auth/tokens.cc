#include "server/auth/tokens.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "common/sha256.h"
#include "common/text.h"

namespace imgd {
namespace {

constexpr std::array kScopes = {Scope::kReport, Scope::kView, Scope::kSubmit, Scope::kOperate, Scope::kAdmin};

}  // namespace

std::string_view NameOf(Scope scope) {
  switch (scope) {
    case Scope::kOpen:
      return "";
    case Scope::kReport:
      return "report";
    case Scope::kAgent:
      return "agent";
    case Scope::kView:
      return "view";
    case Scope::kSubmit:
      return "submit";
    case Scope::kOperate:
      return "operate";
    case Scope::kAdmin:
      return "admin";
  }
  return "";
}

bool Allows(const std::set<std::string>& scopes, Scope wanted) {
  if (wanted == Scope::kReport) return scopes.contains(std::string(NameOf(wanted)));
  if (wanted == Scope::kAgent) return false;
  return std::any_of(kScopes.begin(), kScopes.end(), [&](Scope scope) {
    return scope >= wanted && scope != Scope::kReport && scopes.contains(std::string(NameOf(scope)));
  });
}

Status CheckScopeName(const std::string& name) {
  std::string allowed;
  for (const Scope scope : kScopes) {
    if (name == NameOf(scope)) return {};
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", NameOf(scope));
  }
  return Fail(ErrorCode::kInvalidArgument, "scope: found '{}'; allowed: {}", name, allowed);
}

Status CheckTokenName(const std::string& name) {
  if (IsName(name)) return {};
  return Fail(ErrorCode::kInvalidArgument, "name: found '{}'; {}", name, kNameRule);
}

Result<std::string> RandomHex(size_t bytes) {
  std::string random(bytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(random.data()), static_cast<int>(bytes)) != 1)
    return Fail(ErrorCode::kInternal, "the system gives no random numbers");
  return Hex(random);
}

Result<std::string> NewSecret() {
  IMGD_ASSIGN(const std::string random, RandomHex(32));
  return "imgd_" + random;
}

std::string HashOf(std::string_view secret) { return Sha256Of(secret); }

const TokenRecord* FindToken(const std::map<std::string, TokenRecord>& tokens, std::string_view secret) {
  if (secret.empty()) return nullptr;
  const std::string hash = HashOf(secret);
  const auto found = std::find_if(tokens.begin(), tokens.end(),
                                  [&hash](const auto& token) { return token.second.hash == hash; });
  return found == tokens.end() ? nullptr : &found->second;
}

bool HasExpired(const TokenRecord& token, WallTime now) {
  return token.expires.micros != 0 && token.expires <= now;
}

Caller CallerOf(const TokenRecord& token, Scope scope, WallTime now) {
  if (HasExpired(token, now)) return {.refusal = Refusal::kExpired, .token = token.name};
  if (!Allows(token.scopes, scope)) return {.refusal = Refusal::kWrongScope, .token = token.name};
  return {.token = token.name};
}

Caller Authorise(const std::map<std::string, TokenRecord>& tokens, Scope scope, std::string_view secret,
                 WallTime now) {
  if (scope == Scope::kOpen) return {};
  const TokenRecord* token = FindToken(tokens, secret);
  if (token == nullptr) return {.refusal = Refusal::kUnknown};
  return CallerOf(*token, scope, now);
}

}  // namespace imgd
