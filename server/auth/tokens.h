#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/error.h"
#include "server/store/state_store.h"

/// Tokens: what they look like, what they are good for, and who one is of. No clock, thread or file.
namespace imgd {

/// What a call may need. kOpen calls need no token. kReport is for runs by hand alone, kAgent for an agent
/// with its certificate, which no token stands for; each of the others may do what those before it may: look,
/// ask something of jobs and data sets, of nodes, give leave to others.
enum class Scope { kOpen, kReport, kAgent, kView, kSubmit, kOperate, kAdmin };

/// "report"; empty for kOpen.
std::string_view NameOf(Scope scope);
/// Whether one of the words is a scope that allows what `wanted` does.
bool Allows(const std::set<std::string>& scopes, Scope wanted);
/// Errors: kInvalidArgument, naming what is allowed.
Status CheckScopeName(const std::string& name);
/// 1 to 63 of a-z, A-Z, 0-9, '.', '_' and '-', not starting with '.' or '-'. Errors: kInvalidArgument.
Status CheckTokenName(const std::string& name);

/// So many random bytes, two digits each. Errors: kInternal without randomness.
Result<std::string> RandomHex(size_t bytes);
/// A new token, of 32 random bytes: "imgd_" and 64 hexadecimal digits. Errors: kInternal without randomness.
Result<std::string> NewSecret();
/// What is stored of it. 32 random bytes can't be guessed, so that a plain SHA-256 is enough.
std::string HashOf(std::string_view secret);

/// Why a call is refused.
enum class Refusal { kNone, kUnknown, kExpired, kWrongScope, kSessionOver };

/// The token of a call, and the browser's session that stands for it.
struct Caller {
  Refusal refusal = Refusal::kNone;
  std::string token = {};      ///< its name; empty where none was needed
  std::string session = {};    ///< which one it is; empty where the token itself was shown
  Duration session_left = {};  ///< until it ends by itself
};

/// Whether the token of this name lets nobody in any more.
using IsTokenOver = std::function<bool(const std::string& token)>;

/// The record of that token, whatever it is good for; null where none is known, and for an empty `secret`.
const TokenRecord* FindToken(const std::map<std::string, TokenRecord>& tokens, std::string_view secret);
/// Whether the token is good for nothing any more.
bool HasExpired(const TokenRecord& token, WallTime now);
/// Whether the token is good for `scope` now.
Caller CallerOf(const TokenRecord& token, Scope scope, WallTime now);
/// Whether `secret` (empty: none was given) is good for `scope` now. One that is not known is kUnknown.
Caller Authorise(const std::map<std::string, TokenRecord>& tokens, Scope scope, std::string_view secret,
                 WallTime now);

}  // namespace imgd
