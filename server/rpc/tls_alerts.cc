#include "server/rpc/tls_alerts.h"

#include <utility>

namespace imgd {

std::optional<std::string_view> WordsOfTlsAlert(std::string_view line) {
  // RFC 8446, 6.2, in OpenSSL's words. A certificate that is not good yet is a bad one to OpenSSL.
  static constexpr std::pair<std::string_view, std::string_view> kAlerts[] = {
      {"alert certificate expired",
       "a machine does not take imgd's certificate: by its clock it has expired. Its clock is ahead, or "
       "imgd's is "
       "behind; what it says itself has both times (docs/operations.md, Clocks)"},
      {"alert bad certificate",
       "a machine does not take imgd's certificate: by its clock it is not good yet, or it is for other "
       "names. Its "
       "clock is behind, or imgd's is ahead; what it says itself has both times (docs/operations.md, "
       "Clocks)"},
      {"alert unknown ca",
       "a machine does not take imgd's certificate: it trusts another CA (docs/operations.md, Who may "
       "talk)"}};
  for (const auto& [alert, words] : kAlerts) {
    if (line.find(alert) != std::string_view::npos) return words;
  }
  return std::nullopt;
}

}  // namespace imgd
