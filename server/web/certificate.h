#pragma once

#include <filesystem>
#include <string>

#include "common/clock.h"
#include "common/error.h"

namespace imgd::web {

/// A certificate and its key, as PEM files.
struct CertificateFiles {
  std::filesystem::path certificate;
  std::filesystem::path key;
};

/// `folder`/web.crt and web.key; where one of them lacks, both are made anew: self-signed, P-256, for ten
/// years, for this machine's names and addresses and for `host`, in brackets where it is an IPv6 address.
/// Only the owner can read the key. Errors: as the system calls, naming the path; kInternal where OpenSSL
/// fails.
Result<CertificateFiles> OwnCertificate(const std::filesystem::path& folder, const std::string& host);

/// SHA-256 of the file's first certificate: "AB:CD:...", as browsers and `openssl x509` show it. Errors: as
/// ReadFile; kFailedPrecondition for a file without a certificate.
Result<std::string> FingerprintOf(const std::filesystem::path& certificate);

}  // namespace imgd::web
