#include "common/remote/s3_sign.h"

#include <fmt/chrono.h>

#include <algorithm>

#include "common/sha256.h"

namespace imgd {
namespace {

std::string SortedQuery(const std::string& query) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < query.size();) {
    const size_t end = std::min(query.find('&', at), query.size());
    std::string part = query.substr(at, end - at);
    if (part.find('=') == std::string::npos) part += '=';
    parts.push_back(std::move(part));
    at = end + 1;
  }
  std::ranges::sort(parts);
  return fmt::format("{}", fmt::join(parts, "&"));
}

}  // namespace

void SignV4(HttpRequest& request, const AwsCredentials& credentials, const SigningScope& scope) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(scope.time);
  const std::string time = fmt::format("{:%Y%m%dT%H%M%SZ}", fmt::gmtime(seconds));
  const std::string date = time.substr(0, 8);
  const std::string hash = Sha256Of(request.body);
  request.headers.emplace_back("x-amz-date", time);
  if (scope.service == "s3") request.headers.emplace_back("x-amz-content-sha256", hash);
  if (!credentials.session_token.empty())
    request.headers.emplace_back("x-amz-security-token", credentials.session_token);

  HttpHeaders signed_headers = request.headers;
  const Url& url = request.url;
  const int usual = url.scheme == "https" ? 443 : 80;
  const bool plain = url.port == 0 || url.port == usual;
  signed_headers.emplace_back("host", plain ? url.host : fmt::format("{}:{}", url.host, url.port));
  std::ranges::sort(signed_headers);
  std::string canonical_headers;
  std::string names;
  for (const auto& [name, value] : signed_headers) {
    canonical_headers += fmt::format("{}:{}\n", name, value);
    names += fmt::format("{}{}", names.empty() ? "" : ";", name);
  }
  const std::string canonical = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, url.path,
                                            SortedQuery(url.query), canonical_headers, names, hash);
  const std::string where = fmt::format("{}/{}/{}/aws4_request", date, scope.region, scope.service);
  const std::string to_sign = fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, where, Sha256Of(canonical));
  std::string key = HmacSha256("AWS4" + credentials.secret_key, date);
  for (const std::string& part : {scope.region, scope.service, std::string("aws4_request")})
    key = HmacSha256(key, part);
  request.headers.emplace_back(
      "authorization", fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
                                   credentials.access_key, where, names, Hex(HmacSha256(key, to_sign))));
}

}  // namespace imgd
