#pragma once

#include <optional>
#include <string_view>

namespace imgd {

/// What a line of gRPC's own log means where a client ended TLS with an alert, in words for people; nothing
/// for all other lines. gRPC tells its server nothing else of it, not even the client's address.
std::optional<std::string_view> WordsOfTlsAlert(std::string_view line);

}  // namespace imgd
