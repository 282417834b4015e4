#include "common/url.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "common/text.h"

namespace imgd {
namespace {

bool IsUnreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// What people type, as it may go into a request's first line.
std::string Escaped(std::string_view text) { return PercentEncode(text, "!$&'()*+,;=:@/?%"); }

tl::unexpected<Error> Bad(std::string_view what) {
  return Fail(ErrorCode::kInvalidArgument, "no URL such as https://host/folder/ or s3://bucket/folder/: {}",
              what);
}

Status TakeAuthority(std::string_view authority, Url& url) {
  const size_t at = authority.rfind('@');
  if (at != std::string_view::npos) {
    url.userinfo = authority.substr(0, at);
    authority.remove_prefix(at + 1);
  }
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    const auto digits = authority.substr(colon + 1);
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), url.port);
    if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() || url.port < 1 ||
        url.port > 65535)
      return Bad(fmt::format("'{}' is no port", digits));
    authority = authority.substr(0, colon);
  }
  url.host = Lower(authority);
  const auto bad = [](char c) { return !IsUnreserved(c) && c != '[' && c != ']' && c != ':'; };
  if (url.host.empty() || std::ranges::any_of(url.host, bad))
    return Bad(fmt::format("'{}' is no host", PercentEncode(url.host)));
  return {};
}

}  // namespace

std::string Url::Origin() const {
  return port == 0 ? fmt::format("{}://{}", scheme, host) : fmt::format("{}://{}:{}", scheme, host, port);
}
std::string Url::ToString() const {
  return fmt::format("{}{}{}{}", Origin(), path, query.empty() ? "" : "?", query);
}
std::string Url::ForPeople() const { return Origin() + path; }

bool IsUrl(std::string_view where) {
  const std::string start = Lower(where.substr(0, 8));
  return start.starts_with("http://") || start == "https://" || start.starts_with("s3://");
}

Result<Url> ParseUrl(const std::string& text) {
  if (!IsUrl(text)) return Bad("it begins with none of http://, https://, s3://");
  if (std::ranges::any_of(text, [](char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7F; }))
    return Bad("it has a control character");
  Url url;
  std::string_view rest = text;
  url.scheme = Lower(rest.substr(0, rest.find(':')));
  rest.remove_prefix(url.scheme.size() + 3);
  const size_t end = std::min(rest.find_first_of("/?#"), rest.size());
  IMGD_TRY(TakeAuthority(rest.substr(0, end), url));
  rest.remove_prefix(end);
  if (url.scheme == "s3") {
    if (url.port != 0 || !url.userinfo.empty())
      return Bad("s3://BUCKET/KEY has neither port nor password; AWS_ENDPOINT_URL names another server");
    url.path = rest.empty() ? "/" : std::string(rest);
    if (!url.path.starts_with('/')) return Bad("a bucket's name ends before '/'");
    return url;
  }
  rest = rest.substr(0, rest.find('#'));
  const size_t query = rest.find('?');
  if (query != std::string_view::npos) url.query = Escaped(rest.substr(query + 1));
  url.path = Escaped(rest.substr(0, query));
  if (!url.path.starts_with('/')) url.path = fmt::format("/{}", url.path);
  return url;
}

Result<Url> Resolve(const Url& from, const std::string& location) {
  if (location.find("://") != std::string::npos && location.find("://") < location.find_first_of("/?#"))
    return ParseUrl(location);
  if (location.starts_with("//")) return ParseUrl(from.scheme + ":" + location);
  if (location.starts_with('/')) return ParseUrl(from.Origin() + location);
  if (location.starts_with('?')) return ParseUrl(from.Origin() + from.path + location);
  return ParseUrl(from.Origin() + from.path.substr(0, from.path.rfind('/') + 1) + location);
}

bool IsLoopbackHost(std::string host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  std::array<unsigned char, 16> bytes{};
  if (::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1) return bytes[0] == 127;
  return host == "localhost" || host == "::1";
}

GrpcAddress SplitGrpcAddress(std::string_view text) {
  GrpcAddress out;
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (!text.starts_with(scheme)) continue;
    text.remove_prefix(scheme.size());
    if (text.ends_with('/')) text.remove_suffix(1);
    out.is_said = true;
    out.tls = scheme == "https://";
    break;
  }
  out.address = text;
  if (!out.is_said) {
    const bool has_port = text.ends_with(']') ? false : text.find(':') != std::string_view::npos;
    out.tls = !IsLoopbackHost(std::string(has_port ? text.substr(0, text.rfind(':')) : text));
  }
  return out;
}

std::string PercentEncode(std::string_view text, std::string_view keep) {
  std::string out;
  for (const char c : text) {
    if (IsUnreserved(c) || keep.find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<uint8_t>(c));
    }
  }
  return out;
}

std::string PercentDecode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? HexValue(text[i + 1]) : -1;
    const int low = high >= 0 ? HexValue(text[i + 2]) : -1;
    if (low < 0) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

std::string Beside(const std::string& folder, const std::string& name) {
  const bool http = IsUrl(folder) && !Lower(folder).starts_with("s3");
  const size_t query = http ? folder.find('?') : std::string::npos;
  std::string out = folder.substr(0, query);
  if (!out.ends_with('/')) out += '/';
  out += http ? PercentEncode(name, "!$&'()*+,;=:@") : name;
  return query == std::string::npos ? out : out + folder.substr(query);
}

std::string FolderOf(const std::string& where) {
  const bool http = IsUrl(where) && !Lower(where).starts_with("s3");
  const std::string path = http ? where.substr(0, where.find('?')) : where;
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string NameOfFile(const std::string& where) {
  const bool http = IsUrl(where) && !Lower(where).starts_with("s3");
  const std::string path = http ? where.substr(0, where.find('?')) : where;
  const std::string name = path.substr(path.rfind('/') + 1);
  return http ? PercentDecode(name) : name;
}

}  // namespace imgd
