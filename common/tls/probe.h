#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/error.h"

/// A look at a TLS server without gRPC, which says too little of what went wrong.
namespace imgd::tls {

/// Where to look, and by what.
struct ProbeTarget {
  std::string host;  ///< name or address, IPv6 without brackets
  std::string port;
  Duration timeout = std::chrono::seconds(5);
  std::string ca;           ///< certificates to trust, PEM; empty: the system's
  std::string certificate;  ///< to show, with `key`, PEM; empty: none
  std::string key;
};

/// Of "host:port", with an IPv6 address in brackets; nothing of it is checked.
ProbeTarget TargetOf(const std::string& address);

/// The certificates that the server shows, its own first, PEM. None of them was checked, and nothing was sent
/// but the greeting. Errors: kUnavailable where nobody answers; kFailedPrecondition where what answers does
/// not speak TLS.
Result<std::vector<std::string>> FetchChain(const ProbeTarget& target);

/// That of the certificates with this SHA-256, provided that it signed the server's, or a CA that did;
/// `sha256` as in CertificateFacts. Errors: kPermissionDenied with both hashes.
Result<std::string> FindPinned(const std::vector<std::string>& chain, const std::string& sha256,
                               const std::string& server);

/// Why no connection of gRPC's comes about, in words for people; nothing when one does. The clock is blamed
/// where it would explain it.
std::optional<Error> WhyNoTls(const ProbeTarget& target, const Clock& clock);

}  // namespace imgd::tls
