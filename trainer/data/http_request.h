#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace imgd::data {

/// The head of a request, as a server gets it.
struct RequestHead {
  std::string method;
  std::string path;  ///< decoded, begins with '/'; without the query
  std::string query;
  bool keep_alive = true;
  bool has_body = false;
  std::vector<std::pair<std::string, std::string>> headers;  ///< names in lower case
  std::string_view header(std::string_view name) const;
};

/// Reads a head that ends in an empty line, which `text` includes. Nothing for what is no HTTP/1 request.
std::optional<RequestHead> ParseRequestHead(std::string_view text);

/// What of a file of `size` bytes a Range header asks for.
struct AskedRange {
  enum class Kind { kWhole, kPart, kNone } kind = Kind::kWhole;  ///< kNone: outside of it (416)
  uint64_t first = 0;
  uint64_t size = 0;
};
/// Several ranges, other units and nonsense count as no range (RFC 9110, 14.2).
AskedRange ParseRange(std::string_view header, uint64_t size);

/// Whether the path may be looked for: it has no empty part, none that begins with a dot, no control
/// character.
/// "/" and a '/' at the end are fine.
bool IsServedPath(std::string_view path);

}  // namespace imgd::data
