#pragma once

#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/error.h"
#include "common/tls/pem.h"
#include "server/auth/signing.h"

namespace imgd {

/// Whose certificates imgd uses, and for how long its own are good.
struct AuthoritySettings {
  std::filesystem::path folder;    ///< for what it makes: ca.crt, ca.key, server.crt, server.key
  std::string ca_certificate;      ///< the operator's CA, PEM file; empty: one of its own
  std::string ca_key;              ///< its key, PEM file; given with the certificate
  std::string certificate;         ///< the operator's certificate for this server and its chain; empty: made
  std::string key;                 ///< its key, PEM file; given with the certificate
  std::vector<std::string> names;  ///< what clients call this machine, beside its own names and addresses
  Duration server_lifetime = std::chrono::hours(7 * 24);
  Duration node_lifetime = std::chrono::hours(24);  ///< at most this, less tls::kBackdated
};

/// Who a node's certificate was made for.
struct NodeIdentity {
  std::string node;
  std::string key_sha256;  ///< of its public key
};

/// imgd's CA: the certificates of its own ports and those of agents. Thread-safe.
///
/// The key of a certificate stays when the certificate is made anew, so that whoever reads the two files at
/// any moment has a pair.
class Authority {
 public:
  /// Takes what is in the folder and makes what lacks: the CA for ten years. Errors: kFailedPrecondition for
  /// files that are no pair, a CA's certificate that is none, and one whose key is gone; those of the files,
  /// naming them.
  static Result<std::unique_ptr<Authority>> Open(AuthoritySettings settings, const Clock* clock);
  /// Whether Open() would find what it needs, and the certificates that imgd does not renew are good by the
  /// clock; makes nothing. Errors: as Open; kFailedPrecondition.
  static Status Check(AuthoritySettings settings, const Clock* clock);

  // For gRPC's and HTTP's servers: the server's certificate with its chain, its key, and the CA by which
  // agents' certificates are checked.
  const std::filesystem::path& certificate_path() const { return certificate_path_; }
  const std::filesystem::path& key_path() const { return key_path_; }
  const std::filesystem::path& ca_path() const { return ca_path_; }
  /// What clients pin: SHA-256 of the last certificate that the server shows, as in tls::CertificateFacts.
  const std::string& pin() const { return pin_; }
  /// The pinned certificate, PEM.
  const std::string& root() const { return root_; }
  Duration node_lifetime() const { return settings_.node_lifetime; }

  /// Makes the server's certificate anew where less than a third of its time is left or this machine has
  /// other names by now; true where it did. Never one that the operator gave. Errors: as Open.
  Result<bool> RenewServer();

  /// WarningsOf() the operator's certificate, where there is one, and the CA, as their files are now.
  std::vector<std::string> Warnings() const;

  /// An agent's certificate for the key of its request. Errors: as SignRequest.
  Result<std::string> SignNode(const std::string& request, const std::string& node) const;

 private:
  Authority(AuthoritySettings settings, const Clock* clock);
  Status LoadSigner();
  Status ReadSigner();
  Status LoadServer();
  Status CheckGiven() const;  ///< the server's, where the operator gave it

  AuthoritySettings settings_;
  const Clock* clock_;
  Signer signer_;
  std::filesystem::path ca_path_, ca_key_path_, certificate_path_, key_path_;
  std::string pin_;
  std::string root_;
  std::mutex renewing_;
};

/// What is to be said of certificates that imgd does not renew: a sentence for each of the file that is not
/// good yet, has run out, or has less left than a week and a third of its time. Of a file that can't be read
/// none.
std::vector<std::string> WarningsOf(const std::filesystem::path& file, WallTime now);

/// The first of these that says that nobody takes it: kFailedPrecondition.
Status CheckTimesOf(const std::filesystem::path& file, WallTime now);

/// What is in the certificate of an agent: "imgd://node/NAME/KEY_SHA256".
std::string UriOf(const NodeIdentity& identity);
/// Errors: kPermissionDenied for any other text.
Result<NodeIdentity> IdentityOf(const std::string& uri);

/// This machine's names and addresses, as in CertificateOrder::names, with those that are given.
std::set<std::string> NamesOfMachine(const std::vector<std::string>& given);

}  // namespace imgd
