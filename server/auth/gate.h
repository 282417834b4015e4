#pragma once

#include <map>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "server/auth/tokens.h"
#include "server/engine/engine.h"

namespace imgd {

/// Who may call what, by either way in. Thread-safe; never waits. The engine and the clock must outlive it.
class Gate {
 public:
  /// `local`: only this machine's own users can connect. Then whoever shows no token may do anything for as
  /// long as nobody has a token that is good for `open_until`.
  Gate(const Engine* engine, const Clock* clock, bool local, Scope open_until);

  /// `secret`: the token that the caller shows; empty for none.
  Caller LetIn(Scope scope, std::string_view secret) const;
  /// Whether whoever shows no token may do anything now.
  bool IsOpen() const;

 private:
  const Engine* engine_;
  const Clock* clock_;
  bool local_;
  Scope open_until_;
};

/// Why a caller is refused, for people: not kNone.
Error WhyRefused(const Caller& caller, Scope scope);

/// What "Bearer WORD" has after it; empty for any other text.
std::string_view BearerOf(std::string_view authorization);

}  // namespace imgd
