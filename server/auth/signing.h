#pragma once

#include <set>
#include <string>

#include "common/clock.h"
#include "common/error.h"

/// Certificates as imgd's CA makes them. No clock, thread or file.
namespace imgd {

/// A CA: its certificate and its key, PEM.
struct Signer {
  std::string certificate;
  std::string key;
};

/// What a new certificate says.
struct CertificateOrder {
  std::string common_name;
  std::set<std::string> names = {};  ///< "DNS:gpu-head", "IP:10.0.0.1", "URI:imgd://...": without commas
  bool for_server = false;           ///< good for a server, else for a client
  WallTime from;
  WallTime until;
};

/// A CA of its own, with a new key.
Result<Signer> NewSigner(const std::string& common_name, WallTime from, WallTime until);
/// A certificate for the key, PEM. Errors: kInvalidArgument for what is no key; kInternal where OpenSSL
/// fails.
Result<std::string> SignKey(const Signer& signer, const std::string& key, const CertificateOrder& order);
/// The same for the key of a request, whose own wishes don't count.
Result<std::string> SignRequest(const Signer& signer, const std::string& request,
                                const CertificateOrder& order);

}  // namespace imgd
