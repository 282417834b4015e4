#include "common/remote/s3.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>

namespace imgd {
namespace {

using std::chrono::system_clock;

constexpr uint64_t kMostListBytes = 16 << 20;
constexpr size_t kMostKeys = 2'000'000;

class S3Authorizer final : public Authorizer {
 public:
  S3Authorizer(std::string region, GetVariable env, std::shared_ptr<const HttpClient> client)
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

std::string FirstSet(const GetVariable& env, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = env(name); !value.empty()) return value;
  }
  return "";
}

std::string Unescaped(std::string text) {
  for (const auto& [from, to] : {std::pair{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&amp;", "&"}}) {
    const std::string_view escape = from;
    for (size_t at = text.find(escape); at != std::string::npos; at = text.find(escape, at + 1))
      text.replace(at, escape.size(), to);
  }
  return text;
}

/// "2026-01-31T12:00:00.000Z"; 0 for what is none.
int64_t MicrosOf(const std::string& time) {
  std::tm parts{};
  if (::strptime(time.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr) return 0;
  return int64_t{::timegm(&parts)} * 1'000'000;
}

void AddKeys(std::string_view xml, const std::string& prefix, bool only_files, std::vector<S3Key>& out) {
  for (const auto& one : XmlElements(xml, "Contents")) {
    S3Key entry{.key = KeyOfListing(one), .changed_us = MicrosOf(XmlText(one, "LastModified"))};
    if (!entry.key.starts_with(prefix) || entry.key.ends_with('/')) continue;  // a "folder"
    if (only_files && entry.key.find('/', prefix.size()) != std::string::npos) continue;
    const std::string size = XmlText(one, "Size");
    std::from_chars(size.data(), size.data() + size.size(), entry.bytes);
    out.push_back(std::move(entry));
  }
}

}  // namespace

std::vector<std::string> XmlElements(std::string_view xml, std::string_view name) {
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

std::string XmlText(std::string_view xml, std::string_view name) {
  auto found = XmlElements(xml, name);
  return found.empty() ? "" : Unescaped(std::move(found.front()));
}

std::string KeyOfListing(std::string_view xml) {
  std::string key = XmlText(xml, "Key");
  std::ranges::replace(key, '+', ' ');  // a '+' itself comes as %2B
  return PercentDecode(key);
}

HttpOptions HttpOptionsFrom(const GetVariable& env) {
  HttpOptions options;
  options.notice = [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); };
  options.ca_file = FirstSet(env, {"AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"});
  return options;
}

S3::S3(const GetVariable& env, std::shared_ptr<const HttpClient> client) : client_(std::move(client)) {
  region_ = FirstSet(env, {"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (region_.empty()) region_ = "us-east-1";
  endpoint_ = FirstSet(env, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
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

Result<std::vector<S3Key>> S3::Keys(const std::string& bucket, const std::string& prefix,
                                    bool only_files) const {
  const std::string name = fmt::format("s3://{}/{}", bucket, prefix);
  std::vector<S3Key> keys;
  std::string token;
  do {
    IMGD_ASSIGN(Url address, Address(bucket, ""));
    address.query = fmt::format("{}encoding-type=url&list-type=2&prefix={}",
                                only_files ? "delimiter=%2F&" : "", PercentEncode(prefix));
    if (!token.empty()) address.query += "&continuation-token=" + PercentEncode(token);
    const RemoteObject object{client_, authorizer_, std::move(address), name, /*follow=*/false};
    IMGD_ASSIGN(const auto text, ReadWhole(object, kMostListBytes));
    if (!text) return Fail(ErrorCode::kNotFound, "{}: there is no such bucket", name);
    AddKeys(*text, prefix, only_files, keys);
    const std::string before = std::exchange(token, XmlText(*text, "NextContinuationToken"));
    if (!token.empty() && (token == before || keys.size() > kMostKeys))
      return Fail(ErrorCode::kDataLoss, "{}: the listing has no end", name);
  } while (!token.empty());
  return keys;
}

Result<std::vector<RemoteEntry>> S3::List(const Url& folder) const {
  std::string prefix = folder.path.substr(1);
  if (!prefix.empty() && !prefix.ends_with('/')) prefix += '/';
  IMGD_ASSIGN(auto keys, Keys(folder.host, prefix, /*only_files=*/true));
  std::vector<RemoteEntry> entries;
  for (const auto& key : keys) entries.push_back({key.key.substr(prefix.size()), key.bytes});
  std::ranges::sort(entries, {}, &RemoteEntry::name);
  return entries;
}

}  // namespace imgd
