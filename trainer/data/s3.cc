#include "trainer/data/s3.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>

#include "common/files.h"
#include "common/text.h"

namespace imgd::data {
namespace {

using std::chrono::system_clock;

constexpr uint64_t kMostListBytes = 16 << 20;
constexpr size_t kMostKeys = 2'000'000;
constexpr const char* kDefaultMetadata = "http://169.254.169.254";

/// "2026-01-31T12:00:00Z"
std::optional<system_clock::time_point> ParseTime(const std::string& text) {
  std::tm parts{};
  if (::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts) == nullptr) return std::nullopt;
  return system_clock::from_time_t(::timegm(&parts));
}

class S3Authorizer final : public Authorizer {
 public:
  S3Authorizer(std::string region, Environment env, std::shared_ptr<const HttpClient> client)
      : region_(std::move(region)), source_(std::move(env), std::move(client)) {}
  Status Sign(HttpRequest& request) override {
    IMGD_ASSIGN(const auto credentials, source_.Get());
    if (credentials) SignV4(request, *credentials, {.region = region_, .time = system_clock::now()});
    return {};
  }
  bool Renew() override { return source_.Renew(); }

 private:
  const std::string region_;
  AwsCredentialSource source_;
};

/// The text of the elements <name>; S3's answers do not nest an element in one of its name.
std::vector<std::string> Elements(std::string_view xml, std::string_view name) {
  std::vector<std::string> found;
  const std::string open = fmt::format("<{}>", name);
  const std::string close = fmt::format("</{}>", name);
  for (size_t at = xml.find(open); at != std::string_view::npos; at = xml.find(open, at)) {
    at += open.size();
    const size_t end = xml.find(close, at);
    if (end == std::string_view::npos) break;
    found.emplace_back(xml.substr(at, end - at));
    at = end;
  }
  return found;
}

std::string Unescaped(std::string text) {
  for (const auto& [from, to] : {std::pair{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&amp;", "&"}}) {
    const std::string_view escape = from;
    for (size_t at = text.find(escape); at != std::string::npos; at = text.find(escape, at + 1))
      text.replace(at, escape.size(), to);
  }
  return text;
}

}  // namespace

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
  std::string endpoint = env_("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  const bool given = !endpoint.empty();
  if (!given) endpoint = kDefaultMetadata;
  while (endpoint.ends_with('/')) endpoint.pop_back();
  HttpOptions hurried = client_->options();
  hurried.connect = Milliseconds(1'000);
  hurried.stall = Milliseconds(5'000);
  const HttpClient metadata(hurried);
  const auto ask = [&](const char* method, const std::string& path,
                       HttpHeaders headers) -> Result<std::string> {
    std::string content;
    IMGD_ASSIGN(Url url, ParseUrl(endpoint + path));
    const HttpBody body = {
        .begin = [](const HttpAnswer& answer) -> Result<bool> { return answer.status == 200; },
        .take = [&](std::span<const uint8_t> bytes) -> Status {
          if (content.size() + bytes.size() > 64 << 10)
            return Fail(ErrorCode::kDataLoss, "an answer without end");
          content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          return {};
        }};
    const auto answer =
        metadata.Try({.method = method, .url = url, .headers = std::move(headers), .follow = false}, body);
    if (!answer) return tl::unexpected(answer.error().error);
    if (answer->status == 404) return std::string();
    if (answer->status != 200)
      return Fail(ErrorCode::kUnavailable, "{}{}: status {}", endpoint, path, answer->status);
    return content;
  };
  const auto token = ask("PUT", "/latest/api/token", {{"x-amz-ec2-metadata-token-ttl-seconds", "300"}});
  if (!token) {
    if (!given && !from_role_) return std::optional<AwsCredentials>();  // not on such a machine
    return Fail(ErrorCode::kUnavailable, "cannot fetch the instance's role: {}", token.error().message);
  }
  const std::string base = "/latest/meta-data/iam/security-credentials/";
  const HttpHeaders with = {{"x-amz-ec2-metadata-token", *token}};
  IMGD_ASSIGN(const std::string roles, ask("GET", base, with));
  const std::string role = roles.substr(0, roles.find('\n'));
  if (role.empty()) return std::optional<AwsCredentials>();
  IMGD_ASSIGN(const std::string text, ask("GET", base + PercentEncode(role), with));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto field = [&](const char* name) {
    return json.is_object() && json.contains(name) && json[name].is_string() ? json[name].get<std::string>()
                                                                             : "";
  };
  const AwsCredentials found{
      field("AccessKeyId"), field("SecretAccessKey"), field("Token"),
      ParseTime(field("Expiration")).value_or(system_clock::now() + std::chrono::minutes(10))};
  if (found.access_key.empty() || found.secret_key.empty())
    return Fail(ErrorCode::kUnavailable, "the instance's role '{}' came without keys", PercentEncode(role));
  from_role_ = true;
  return std::optional(found);
}

S3::S3(const Environment& env, std::shared_ptr<const HttpClient> client) : client_(std::move(client)) {
  const auto first = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (std::string value = env(name); !value.empty()) return value;
    }
    return std::string();
  };
  region_ = first({"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (region_.empty()) region_ = "us-east-1";
  endpoint_ = first({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  path_style_ = !endpoint_.empty();
  if (endpoint_.empty()) endpoint_ = fmt::format("https://s3.{}.amazonaws.com", region_);
  while (endpoint_.ends_with('/')) endpoint_.pop_back();
  authorizer_ = std::make_shared<S3Authorizer>(region_, env, client_);
}

Result<Url> S3::Address(const std::string& bucket, const std::string& key) const {
  IMGD_ASSIGN(Url url, ParseUrl(endpoint_));
  if (url.scheme == "s3")
    return Fail(ErrorCode::kInvalidArgument, "AWS_ENDPOINT_URL is no http or https URL");
  url.query.clear();
  if (url.path == "/") url.path.clear();
  // A dot in a bucket's name fits no certificate.
  if (path_style_ || bucket.find('.') != std::string::npos) {
    url.path += "/" + bucket;
  } else {
    url.host = bucket + "." + url.host;
  }
  url.path += "/" + PercentEncode(key, "/");
  return url;
}

Result<RemoteObject> S3::Object(const Url& url) const {
  IMGD_ASSIGN(Url address, Address(url.host, url.path.substr(1)));
  return RemoteObject{client_, authorizer_, std::move(address), url.ForPeople(), /*follow=*/false};
}

Result<std::vector<RemoteEntry>> S3::List(const Url& folder) const {
  std::string prefix = folder.path.substr(1);
  if (!prefix.empty() && !prefix.ends_with('/')) prefix += '/';
  std::vector<RemoteEntry> entries;
  std::string token;
  do {
    IMGD_ASSIGN(Url address, Address(folder.host, ""));
    address.query =
        fmt::format("delimiter=%2F&encoding-type=url&list-type=2&prefix={}", PercentEncode(prefix));
    if (!token.empty()) address.query += "&continuation-token=" + PercentEncode(token);
    const RemoteObject object{client_, authorizer_, std::move(address), folder.ForPeople(), /*follow=*/false};
    IMGD_ASSIGN(const auto text, ReadWhole(object, kMostListBytes));
    if (!text) return Fail(ErrorCode::kNotFound, "{}: there is no such bucket", folder.ForPeople());
    for (const auto& one : Elements(*text, "Contents")) {
      const auto key = Elements(one, "Key");
      const auto size = Elements(one, "Size");
      const std::string name = key.empty() ? "" : PercentDecode(Unescaped(key[0]));
      if (!name.starts_with(prefix) || name.size() == prefix.size()) continue;
      RemoteEntry entry{.name = name.substr(prefix.size())};
      if (entry.name.find('/') != std::string::npos) continue;
      if (!size.empty()) std::from_chars(size[0].data(), size[0].data() + size[0].size(), entry.bytes);
      entries.push_back(std::move(entry));
    }
    const auto next = Elements(*text, "NextContinuationToken");
    const std::string before = std::exchange(token, next.empty() ? "" : Unescaped(next[0]));
    if (!token.empty() && (token == before || entries.size() > kMostKeys))
      return Fail(ErrorCode::kDataLoss, "{}: the listing has no end", folder.ForPeople());
  } while (!token.empty());
  std::ranges::sort(entries, {}, &RemoteEntry::name);
  return entries;
}

}  // namespace imgd::data
