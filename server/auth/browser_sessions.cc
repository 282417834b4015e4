#include "server/auth/browser_sessions.h"

#include <openssl/crypto.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "common/files.h"
#include "common/sha256.h"
#include "common/text.h"
#include "common/tls/pem.h"

namespace imgd {
namespace {

constexpr size_t kKeyBytes = 32;
constexpr size_t kIdBytes = 16;
constexpr int64_t kLifetimeMicros =
    std::chrono::duration_cast<std::chrono::microseconds>(BrowserSessions::kLifetime).count();

std::optional<WallTime> TimeOf(std::string_view text) {
  WallTime time;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, time.micros);
  if (error != std::errc() || rest != end) return std::nullopt;
  return time;
}

/// What is before the next '.', which goes with it; nothing where there is none.
std::optional<std::string_view> TakePart(std::string_view& text) {
  const size_t dot = text.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto part = text.substr(0, dot);
  text.remove_prefix(dot + 1);
  return part;
}

}  // namespace

Result<std::unique_ptr<BrowserSessions>> BrowserSessions::Open(std::filesystem::path file,
                                                               const Clock* clock) {
  std::unique_ptr<BrowserSessions> sessions(new BrowserSessions(std::move(file), clock));
  std::error_code unseen;
  if (std::filesystem::exists(sessions->file_, unseen) || unseen) {
    IMGD_ASSIGN(const std::string text, ReadFile(sessions->file_));
    if (sessions->Load(text)) return sessions;
    spdlog::warn("file={} msg=\"it is damaged and made anew: browsers have to log in again\"",
                 sessions->file_.native());
    sessions->ended_.clear();
  }
  IMGD_ASSIGN(sessions->key_, RandomHex(kKeyBytes));
  IMGD_TRY(sessions->Store());
  return sessions;
}

bool BrowserSessions::Load(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string what, name, time, id;
    words >> what >> name >> time >> id;
    if (what == "key") {
      key_ = name;
      continue;
    }
    const auto begun = TimeOf(time);
    if (what != "ended" || !begun) return false;
    auto& ended = ended_[name];
    if (id.empty()) {
      ended.all_until = *begun;
    } else {
      ended.sessions[id] = *begun;
    }
  }
  return key_.size() == 2 * kKeyBytes;
}

Status BrowserSessions::Store() const {
  std::string text = fmt::format("key {}\n", key_);
  for (const auto& [name, ended] : ended_) {
    if (ended.all_until.micros != 0) text += fmt::format("ended {} {}\n", name, ended.all_until.micros);
    for (const auto& [id, begun] : ended.sessions)
      text += fmt::format("ended {} {} {}\n", name, begun.micros, id);
  }
  return tls::WriteSecretFile(file_, text);
}

void BrowserSessions::ForgetOld() {
  const int64_t oldest = clock_->Wall().micros - kLifetimeMicros;
  for (auto& [name, ended] : ended_) {
    std::erase_if(ended.sessions, [oldest](const auto& session) { return session.second.micros <= oldest; });
  }
  std::erase_if(ended_, [oldest](const auto& token) {
    return token.second.sessions.empty() && token.second.all_until.micros <= oldest;
  });
}

std::string BrowserSessions::MacOf(const Session& session, const TokenRecord& token) const {
  // With the token's hash: another token of the same name is another.
  return Hex(
      HmacSha256(key_, fmt::format("{} {} {} {}", session.begun.micros, session.id, token.name, token.hash)));
}

Result<std::string> BrowserSessions::Begin(const TokenRecord& token) const {
  Session session{.begun = clock_->Wall(), .id = {}, .token = token.name};
  IMGD_ASSIGN(session.id, RandomHex(kIdBytes));
  return fmt::format("{}.{}.{}.{}", session.begun.micros, session.id, MacOf(session, token), token.name);
}

std::optional<BrowserSessions::Session> BrowserSessions::Find(
    const std::map<std::string, TokenRecord>& tokens, std::string_view cookie) const {
  const auto begun = TakePart(cookie);
  const auto id = TakePart(cookie);
  const auto mac = TakePart(cookie);
  const auto time = begun ? TimeOf(*begun) : std::nullopt;
  if (!mac || !time) return std::nullopt;
  Session session{.begun = *time, .id = std::string(*id), .token = std::string(cookie)};
  const auto token = tokens.find(session.token);
  if (token == tokens.end()) return std::nullopt;
  const std::string right = MacOf(session, token->second);
  if (mac->size() != right.size() || CRYPTO_memcmp(mac->data(), right.data(), right.size()) != 0)
    return std::nullopt;
  if (session.begun.micros + kLifetimeMicros <= clock_->Wall().micros) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto ended = ended_.find(session.token);
  if (ended == ended_.end()) return session;
  if (session.begun <= ended->second.all_until || ended->second.sessions.contains(session.id))
    return std::nullopt;
  return session;
}

Caller BrowserSessions::LetIn(const std::map<std::string, TokenRecord>& tokens, Scope scope,
                              std::string_view cookie) const {
  if (scope == Scope::kOpen) return {};
  auto session = Find(tokens, cookie);
  if (!session) return {.refusal = Refusal::kSessionOver};
  const WallTime now = clock_->Wall();
  const TokenRecord& token = tokens.at(session->token);
  int64_t end = session->begun.micros + kLifetimeMicros;
  if (token.expires.micros != 0) end = std::min(end, token.expires.micros);
  Caller caller = CallerOf(token, scope, now);
  caller.session = std::move(session->id);
  caller.session_left = std::chrono::microseconds(end - now.micros);
  return caller;
}

Status BrowserSessions::End(const std::map<std::string, TokenRecord>& tokens, std::string_view cookie) {
  const auto session = Find(tokens, cookie);
  if (!session) return {};
  const std::lock_guard lock(mutex_);
  ForgetOld();
  auto& ended = ended_[session->token];
  if (ended.sessions.size() < kMostEnded) {
    ended.sessions.emplace(session->id, session->begun);
  } else {
    ended.sessions.clear();
    ended.all_until = clock_->Wall();
  }
  if (on_end_) on_end_(session->id);
  return Store();
}

void BrowserSessions::OnEnd(std::function<void(const std::string& session)> call) {
  const std::lock_guard lock(mutex_);
  on_end_ = std::move(call);
}

}  // namespace imgd
