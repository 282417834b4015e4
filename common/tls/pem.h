#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/error.h"

/// Keys, requests and certificates, as PEM texts. Keys are of the curve P-256.
namespace imgd::tls {

/// Certificates are good from so long before they are made: a clock that runs a bit behind does not refuse
/// them.
inline constexpr Duration kBackdated = std::chrono::hours(1);
/// How long after its last certificate ran out a node may still renew it.
inline constexpr Duration kRenewable = std::chrono::days(7);

/// What there is to know of a certificate.
struct CertificateFacts {
  std::string sha256;      ///< of all of it (DER), lower-case hexadecimal
  std::string key_sha256;  ///< of its public key, lower-case hexadecimal
  WallTime not_before;
  WallTime not_after;
  std::vector<std::string> names;  ///< "DNS:gpu-head", "IP:10.0.0.1", "URI:imgd://...", sorted
};

/// A new private key. Errors: kInternal where OpenSSL fails.
Result<std::string> NewKey();
/// A request to certify the key, signed by it. Errors: kInvalidArgument for what is no key.
Result<std::string> MakeRequest(const std::string& key);
/// SHA-256 of the public key that the request asks to certify. Errors: kInvalidArgument for what is no
/// request, and for one that was not signed by that key, whose sender may not have it.
Result<std::string> CheckRequest(const std::string& request);
/// SHA-256 of the key's public half. Errors: kInvalidArgument.
Result<std::string> PublicHashOf(const std::string& key);

/// Of the text's first certificate. Errors: kInvalidArgument for a text without one.
Result<CertificateFacts> FactsOf(std::string_view pem);
/// Its certificates one by one, in their order.
std::vector<std::string> Certificates(std::string_view pem);
/// Whether `issuer` signed the certificate.
bool IsSignedBy(const std::string& certificate, const std::string& issuer);
/// Whether it may sign certificates, as a CA does.
bool IsCa(const std::string& certificate);
/// Whether the chain's first certificate is signed, by CAs between, by the one at `place`: each by the one
/// after it. The first itself: whether it is signed by itself.
bool LeadsTo(const std::vector<std::string>& chain, size_t place);
/// "2026-01-31 12:00:00 UTC".
std::string DateOf(WallTime time);
/// "AB:CD:..." of lower-case hexadecimal digits, as browsers and `openssl x509` show a fingerprint.
std::string WithColons(std::string_view hexadecimal);

/// Puts the file in the place of an old one; nobody but its owner can read it, at no moment. Errors: as the
/// system calls, naming the path.
Status WriteSecretFile(const std::filesystem::path& path, std::string_view content);

}  // namespace imgd::tls
