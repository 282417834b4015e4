#include "trainer/data/http_request.h"

#include <algorithm>
#include <charconv>

#include "common/text.h"
#include "common/url.h"

namespace imgd::data {
namespace {

std::optional<uint64_t> DecimalNumber(std::string_view text) {
  uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size())
    return std::nullopt;
  return value;
}

/// "GET /path?query HTTP/1.1"
bool TakeFirstLine(std::string_view line, RequestHead& head) {
  const size_t space = line.find(' ');
  const size_t last = line.rfind(' ');
  if (space == std::string_view::npos || space == last || space == 0) return false;
  const auto version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return false;
  head.keep_alive = version == "HTTP/1.1";
  head.method = line.substr(0, space);
  std::string_view target = line.substr(space + 1, last - space - 1);
  if (target.starts_with("http://")) {  // as a proxy is asked
    const size_t path = target.find('/', 7);
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  if (!target.starts_with('/')) return false;
  const size_t query = target.find('?');
  if (query != std::string_view::npos) head.query = target.substr(query + 1);
  head.path = PercentDecode(target.substr(0, query));
  return true;
}

}  // namespace

std::string_view RequestHead::header(std::string_view name) const {
  const auto found = std::ranges::find(headers, name, &std::pair<std::string, std::string>::first);
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::optional<RequestHead> ParseRequestHead(std::string_view text) {
  RequestHead head;
  const size_t first = text.find("\r\n");
  if (first == std::string_view::npos || !TakeFirstLine(text.substr(0, first), head)) return std::nullopt;
  for (size_t at = first + 2; at < text.size();) {
    const size_t end = text.find("\r\n", at);
    if (end == std::string_view::npos) return std::nullopt;
    const auto line = text.substr(at, end - at);
    at = end + 2;
    if (line.empty()) break;
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) return std::nullopt;
    head.headers.emplace_back(Lower(line.substr(0, colon)), Trimmed(line.substr(colon + 1), " \t"));
  }
  const std::string connection = Lower(head.header("connection"));
  if (connection == "close") head.keep_alive = false;
  if (connection == "keep-alive") head.keep_alive = true;
  const auto length = head.header("content-length");
  head.has_body = !head.header("transfer-encoding").empty() || (!length.empty() && length != "0");
  return head;
}

AskedRange ParseRange(std::string_view header, uint64_t size) {
  const AskedRange whole{AskedRange::Kind::kWhole, 0, size};
  if (!header.starts_with("bytes=")) return whole;
  header.remove_prefix(6);
  const size_t dash = header.find('-');
  if (dash == std::string_view::npos || header.find(',') != std::string_view::npos) return whole;
  const auto first = DecimalNumber(header.substr(0, dash));
  const auto last = DecimalNumber(header.substr(dash + 1));
  if (dash == 0) {  // the last so many
    if (!last) return whole;
    if (*last == 0 || size == 0) return {AskedRange::Kind::kNone};
    const uint64_t count = std::min(*last, size);
    return {AskedRange::Kind::kPart, size - count, count};
  }
  if (!first || (!last && dash + 1 != header.size()) || (last && *last < *first)) return whole;
  if (*first >= size) return {AskedRange::Kind::kNone};
  const uint64_t end = last ? std::min(*last, size - 1) : size - 1;
  return {AskedRange::Kind::kPart, *first, end - *first + 1};
}

bool IsServedPath(std::string_view path) {
  if (!path.starts_with('/') || path.size() > 4096) return false;
  if (std::ranges::any_of(path, [](char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7F; }))
    return false;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    if (path[i] == '/' && (path[i + 1] == '/' || path[i + 1] == '.')) return false;
  }
  return true;
}

}  // namespace imgd::data
