#include "server/auth/authority.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/files.h"
#include "common/url.h"

namespace imgd {
namespace {

namespace fs = std::filesystem;

constexpr Duration kTenYears = std::chrono::hours(24 * 3652);
using tls::kBackdated;
constexpr size_t kMostBytes = size_t{1} << 20;
constexpr std::string_view kNodeUri = "imgd://node/";

int64_t MicrosOf(Duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

WallTime After(WallTime time, Duration duration) { return {time.micros + MicrosOf(duration)}; }

/// The certificate and the key are one pair.
Status CheckPair(const std::string& certificate, const std::string& key, const fs::path& certificate_path,
                 const fs::path& key_path) {
  const auto facts = tls::FactsOf(certificate);
  if (!facts)
    return Fail(ErrorCode::kFailedPrecondition, "tls: {} has no certificate in PEM",
                certificate_path.native());
  const auto hash = tls::PublicHashOf(key);
  if (!hash) {
    return Fail(ErrorCode::kFailedPrecondition, "tls: {} has no private key in PEM without a password",
                key_path.native());
  }
  if (*hash == facts->key_sha256) return {};
  return Fail(ErrorCode::kFailedPrecondition, "tls: the key in {} is not that of the certificate in {}",
              key_path.native(), certificate_path.native());
}

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

}  // namespace

Authority::Authority(AuthoritySettings settings, const Clock* clock)
    : settings_(std::move(settings)), clock_(clock) {
  // With the time by which it is dated back a node's is good for no longer than a day.
  settings_.node_lifetime = std::min<Duration>(settings_.node_lifetime, std::chrono::hours(24) - kBackdated);
  const auto given_or = [this](const std::string& given, const char* own) {
    return given.empty() ? settings_.folder / own : fs::path(given);
  };
  ca_path_ = given_or(settings_.ca_certificate, "ca.crt");
  ca_key_path_ = given_or(settings_.ca_key, "ca.key");
  certificate_path_ = given_or(settings_.certificate, "server.crt");
  key_path_ = given_or(settings_.key, "server.key");
}

Result<std::unique_ptr<Authority>> Authority::Open(AuthoritySettings settings, const Clock* clock) {
  std::unique_ptr<Authority> authority(new Authority(std::move(settings), clock));
  IMGD_TRY(authority->LoadSigner());
  IMGD_TRY(authority->LoadServer());
  return authority;
}

Status Authority::Check(AuthoritySettings settings, const Clock* clock) {
  Authority authority(std::move(settings), clock);
  const bool is_made = authority.settings_.ca_certificate.empty() && !Exists(authority.ca_path_);
  if (!is_made) {
    IMGD_TRY(authority.ReadSigner());
    IMGD_TRY(CheckTimesOf(authority.ca_path_, clock->Wall()));
  }
  if (authority.settings_.certificate.empty()) return {};
  IMGD_TRY(authority.CheckGiven());
  return CheckTimesOf(authority.certificate_path_, clock->Wall());
}

Status Authority::LoadSigner() {
  const bool own = settings_.ca_certificate.empty();
  if (own && !Exists(ca_path_)) {
    const WallTime now = clock_->Wall();
    IMGD_ASSIGN(const Signer made, NewSigner("imgd CA", After(now, -kBackdated), After(now, kTenYears)));
    // The certificate last: without it both are made again.
    IMGD_TRY(tls::WriteSecretFile(ca_key_path_, made.key));
    IMGD_TRY(WriteFileAtomically(ca_path_, made.certificate));
    spdlog::info("ca={} msg=\"made a CA for this installation\"", ca_path_.native());
  }
  return ReadSigner();
}

Status Authority::ReadSigner() {
  const bool own = settings_.ca_certificate.empty();
  if (own && Exists(ca_path_) && !Exists(ca_key_path_)) {
    return tl::unexpected(Error{
        .code = ErrorCode::kFailedPrecondition,
        .message =
            fmt::format("tls: {} is there and its key {} is not", ca_path_.native(), ca_key_path_.native()),
        .hint = "put the key back from a backup; or remove the certificate too, and every node and client "
                "has to join or log in again (docs/operations.md, Who may talk)"});
  }
  IMGD_ASSIGN(signer_.certificate, ReadFile(ca_path_, kMostBytes));
  IMGD_ASSIGN(signer_.key, ReadFile(ca_key_path_, kMostBytes));
  IMGD_TRY(CheckPair(signer_.certificate, signer_.key, ca_path_, ca_key_path_));
  if (tls::IsCa(signer_.certificate)) return {};
  return Fail(ErrorCode::kFailedPrecondition, "tls: the certificate in {} is not that of a CA",
              ca_path_.native());
}

Status Authority::CheckGiven() const {
  IMGD_ASSIGN(const std::string certificate, ReadFile(certificate_path_, kMostBytes));
  IMGD_ASSIGN(const std::string key, ReadFile(key_path_, kMostBytes));
  return CheckPair(certificate, key, certificate_path_, key_path_);
}

Status Authority::LoadServer() {
  if (!settings_.certificate.empty()) {
    IMGD_TRY(CheckGiven());
  } else {
    IMGD_TRY(RenewServer());
  }
  IMGD_ASSIGN(const std::string chain, ReadFile(certificate_path_, kMostBytes));
  root_ = tls::Certificates(chain).back();
  IMGD_ASSIGN(const auto facts, tls::FactsOf(root_));
  pin_ = facts.sha256;
  return {};
}

Result<bool> Authority::RenewServer() {
  if (!settings_.certificate.empty()) return false;
  const std::lock_guard lock(renewing_);
  const WallTime now = clock_->Wall();
  const std::set<std::string> names = NamesOfMachine(settings_.names);
  const auto present = ReadFile(certificate_path_, kMostBytes);
  if (present && Exists(key_path_)) {
    const auto facts = tls::FactsOf(*present);
    const bool fresh = facts && facts->not_before <= now &&
                       now <= After(facts->not_after, -settings_.server_lifetime / 3) &&
                       tls::IsSignedBy(*present, signer_.certificate) &&
                       std::set<std::string>(facts->names.begin(), facts->names.end()) == names;
    if (fresh) return false;
  }
  std::string key = ReadFile(key_path_, kMostBytes).value_or("");
  if (!tls::PublicHashOf(key)) {
    IMGD_ASSIGN(key, tls::NewKey());
    IMGD_TRY(tls::WriteSecretFile(key_path_, key));
  }
  const CertificateOrder order{.common_name = "imgd",
                               .names = names,
                               .for_server = true,
                               .from = After(now, -kBackdated),
                               .until = After(now, settings_.server_lifetime)};
  IMGD_ASSIGN(const std::string certificate, SignKey(signer_, key, order));
  IMGD_TRY(WriteFileAtomically(certificate_path_, certificate + signer_.certificate));
  return true;
}

std::vector<std::string> Authority::Warnings() const {
  auto out = WarningsOf(ca_path_, clock_->Wall());
  if (settings_.certificate.empty()) return out;
  const auto of_server = WarningsOf(certificate_path_, clock_->Wall());
  out.insert(out.end(), of_server.begin(), of_server.end());
  return out;
}

namespace {

struct Warning {
  std::string text;
  bool useless = false;  ///< nobody takes the certificate now
};

std::vector<Warning> LookAtTimes(const fs::path& file, WallTime now) {
  constexpr Duration kWeek = std::chrono::hours(7 * 24);
  std::vector<Warning> out;
  for (const auto& certificate : tls::Certificates(ReadFile(file, kMostBytes).value_or(""))) {
    const auto facts = tls::FactsOf(certificate);
    if (!facts) continue;
    const int64_t soon = std::min(MicrosOf(kWeek), (facts->not_after.micros - facts->not_before.micros) / 3);
    const std::string times =
        fmt::format("is good from {} to {}, and by this machine's clock it is {}",
                    tls::DateOf(facts->not_before), tls::DateOf(facts->not_after), tls::DateOf(now));
    if (now < facts->not_before) {
      out.push_back(
          {fmt::format("the certificate in {} is not good yet: it {}", file.native(), times), true});
    } else if (facts->not_after <= now) {
      out.push_back(
          {fmt::format("the certificate in {} has run out, and nobody takes it: it {}", file.native(), times),
           true});
    } else if (facts->not_after.micros - now.micros < soon) {
      out.push_back({fmt::format("the certificate in {} soon runs out: it {}", file.native(), times)});
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> WarningsOf(const fs::path& file, WallTime now) {
  std::vector<std::string> out;
  for (auto& warning : LookAtTimes(file, now)) out.push_back(std::move(warning.text));
  return out;
}

Status CheckTimesOf(const fs::path& file, WallTime now) {
  for (const auto& warning : LookAtTimes(file, now)) {
    if (warning.useless) return Fail(ErrorCode::kFailedPrecondition, "{}", warning.text);
  }
  return {};
}

Result<std::string> Authority::SignNode(const std::string& request, const std::string& node) const {
  IMGD_ASSIGN(const std::string key_sha256, tls::CheckRequest(request));
  const WallTime now = clock_->Wall();
  return SignRequest(signer_, request,
                     {.common_name = "imgagent",
                      .names = {"URI:" + UriOf({node, key_sha256})},
                      .from = After(now, -kBackdated),
                      .until = After(now, settings_.node_lifetime)});
}

std::string UriOf(const NodeIdentity& identity) {
  return fmt::format("{}{}/{}", kNodeUri, PercentEncode(identity.node), identity.key_sha256);
}

Result<NodeIdentity> IdentityOf(const std::string& uri) {
  const size_t slash = uri.rfind('/');
  if (!uri.starts_with(kNodeUri) || slash < kNodeUri.size())
    return Fail(ErrorCode::kPermissionDenied, "the certificate is not that of an agent");
  return NodeIdentity{PercentDecode(uri.substr(kNodeUri.size(), slash - kNodeUri.size())),
                      uri.substr(slash + 1)};
}

}  // namespace imgd
