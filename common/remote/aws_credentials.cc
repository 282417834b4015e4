#include "common/remote/aws_credentials.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/files.h"
#include "common/remote/instance_metadata.h"
#include "common/text.h"
#include "common/times.h"

namespace imgd {
namespace {

using std::chrono::system_clock;

/// "2026-01-31T12:00:00Z"
std::optional<system_clock::time_point> TimeOf(const std::string& text) {
  const auto micros = ParseTime(text);
  if (!micros) return std::nullopt;
  return system_clock::time_point(std::chrono::microseconds(*micros));
}

}  // namespace

std::string VariableOfProcess(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::optional<AwsCredentials> ParseProfile(const std::string& text, const std::string& profile) {
  AwsCredentials found;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const auto line = Trimmed(std::string_view(text).substr(at, end - at));
    at = end + 1;
    if (line.starts_with('[')) {
      inside = Trimmed(line.substr(1, line.find(']') - 1)) == profile;
      continue;
    }
    const size_t equals = line.find('=');
    if (!inside || equals == std::string_view::npos || line.starts_with('#') || line.starts_with(';'))
      continue;
    const auto name = Trimmed(line.substr(0, equals));
    const std::string value(Trimmed(line.substr(equals + 1)));
    if (name == "aws_access_key_id") found.access_key = value;
    if (name == "aws_secret_access_key") found.secret_key = value;
    if (name == "aws_session_token") found.session_token = value;
  }
  if (found.access_key.empty() || found.secret_key.empty()) return std::nullopt;
  return found;
}

Result<std::optional<AwsCredentials>> AwsCredentialSource::Get() {
  const std::lock_guard lock(mutex_);
  const auto soon = system_clock::now() + std::chrono::minutes(5);
  if (known_ && (!credentials_ || credentials_->expires > soon)) return credentials_;
  auto found = from_role_ ? FromRole() : Find();
  if (!found) {
    // The old ones still serve until they end.
    if (credentials_ && credentials_->expires > system_clock::now()) return credentials_;
    return found;
  }
  credentials_ = std::move(*found);
  known_ = true;
  return credentials_;
}

bool AwsCredentialSource::Renew() {
  const std::lock_guard lock(mutex_);
  if (!from_role_) return false;
  known_ = false;
  credentials_.reset();
  return true;
}

Result<std::optional<AwsCredentials>> AwsCredentialSource::Find() {
  const AwsCredentials given{env_("AWS_ACCESS_KEY_ID"), env_("AWS_SECRET_ACCESS_KEY"),
                             env_("AWS_SESSION_TOKEN")};
  if (given.access_key.empty() != given.secret_key.empty())
    return Fail(ErrorCode::kInvalidArgument,
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: one is set, and the other is not");
  if (!given.access_key.empty()) return std::optional(given);

  std::string file = env_("AWS_SHARED_CREDENTIALS_FILE");
  if (file.empty() && !env_("HOME").empty()) file = env_("HOME") + "/.aws/credentials";
  const std::string profile = env_("AWS_PROFILE");
  const auto text = file.empty() ? Result<std::string>(std::string()) : ReadFile(file, 1 << 20);
  auto found = text ? ParseProfile(*text, profile.empty() ? "default" : profile) : std::nullopt;
  if (found) return found;
  if (!profile.empty())
    return Fail(ErrorCode::kInvalidArgument, "AWS_PROFILE is '{}', but {} has no keys for it", profile, file);
  if (env_("AWS_EC2_METADATA_DISABLED") == "true") return std::optional<AwsCredentials>();
  return FromRole();
}

/// IMDSv2: a token, the role's name, its credentials. Nothing where this is no such machine or it has no
/// role.
Result<std::optional<AwsCredentials>> AwsCredentialSource::FromRole() {
  const std::string endpoint = env_("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  const bool given = !endpoint.empty();
  InstanceMetadata metadata(given ? endpoint : InstanceMetadata::kAddress, client_->options());
  if (const auto begun = metadata.Begin(); !begun) {
    if (!given && !from_role_) return std::optional<AwsCredentials>();  // not on such a machine
    return Fail(ErrorCode::kUnavailable, "cannot fetch the instance's role: {}", begun.error().message);
  }
  const std::string base = "/latest/meta-data/iam/security-credentials/";
  IMGD_ASSIGN(const auto roles, metadata.Get(base));
  const std::string role = roles ? roles->substr(0, roles->find('\n')) : "";
  if (role.empty()) return std::optional<AwsCredentials>();
  IMGD_ASSIGN(const auto keys, metadata.Get(base + PercentEncode(role)));
  const std::string text = keys.value_or("");
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto field = [&](const char* name) {
    return json.is_object() && json.contains(name) && json[name].is_string() ? json[name].get<std::string>()
                                                                             : "";
  };
  const AwsCredentials found{
      field("AccessKeyId"), field("SecretAccessKey"), field("Token"),
      TimeOf(field("Expiration")).value_or(system_clock::now() + std::chrono::minutes(10))};
  if (found.access_key.empty() || found.secret_key.empty())
    return Fail(ErrorCode::kUnavailable, "the instance's role '{}' came without keys", PercentEncode(role));
  from_role_ = true;
  return std::optional(found);
}

}  // namespace imgd
