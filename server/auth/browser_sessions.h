#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/error.h"
#include "server/auth/tokens.h"

namespace imgd {

/// What browsers have in a token's place: a cookie that says which token began it and when, with a MAC by a
/// key that imgd keeps. The token can't be had from it. A session ends with its time, at log-out, and as soon
/// as its token is revoked or expires; imgd's restart does not end it. Thread-safe.
class BrowserSessions {
 public:
  static constexpr Duration kLifetime = std::chrono::hours(24);
  /// Log-outs of one token that are remembered singly; with one more all its sessions until then are over.
  static constexpr size_t kMostEnded = 100;

  /// The key, and which sessions ended before their time, are in `file`, which only its owner can read: made
  /// where it is not there, and made anew, which ends all sessions, where it is damaged. Errors: those of the
  /// file, naming it; kInternal without randomness. The clock must outlive it.
  static Result<std::unique_ptr<BrowserSessions>> Open(std::filesystem::path file, const Clock* clock);

  /// The cookie of a new session: letters, digits, '.', '_' and '-' only. Errors: kInternal without
  /// randomness.
  Result<std::string> Begin(const TokenRecord& token) const;

  /// Who comes with this cookie, and whether that is good for `scope` now: kSessionOver for whatever is no
  /// session that goes on.
  Caller LetIn(const std::map<std::string, TokenRecord>& tokens, Scope scope, std::string_view cookie) const;

  /// Ends the session, if it is one that goes on, for good: a copy of its cookie is refused as well. Waits
  /// for the disk. Errors: those of the file; then it is over until the next restart only.
  Status End(const std::map<std::string, TokenRecord>& tokens, std::string_view cookie);
  /// Called with the session of each End(), as Caller::session has it; an empty `call` for none.
  void OnEnd(std::function<void(const std::string& session)> call);

 private:
  /// What a cookie has in it.
  struct Session {
    WallTime begun;
    std::string id;
    std::string token;  ///< its name
  };
  struct Ended {
    WallTime all_until;                        ///< those that began until then; zero: none
    std::map<std::string, WallTime> sessions;  ///< by their ids: when they began
  };

  BrowserSessions(std::filesystem::path file, const Clock* clock) : file_(std::move(file)), clock_(clock) {}
  bool Load(const std::string& text);
  Status Store() const;  // with the mutex held
  void ForgetOld();      // with the mutex held
  std::string MacOf(const Session& session, const TokenRecord& token) const;
  std::optional<Session> Find(const std::map<std::string, TokenRecord>& tokens,
                              std::string_view cookie) const;

  const std::filesystem::path file_;
  const Clock* clock_;
  std::string key_;  ///< hexadecimal; does not change
  mutable std::mutex mutex_;
  std::map<std::string, Ended> ended_;              ///< by the token's name; guarded by mutex_
  std::function<void(const std::string&)> on_end_;  ///< guarded by mutex_
};

}  // namespace imgd
