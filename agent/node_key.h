#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include "agent/ec2_identity.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/tls/join_token.h"
#include "common/tls/pem.h"

namespace grpc {
class ClientContext;
}

namespace imgd {

namespace v1 {
class EnrolRequest;
class RenewResponse;
}  // namespace v1

/// Errors: ReadFile()'s, and ParseJoinToken()'s with the file's name.
Result<tls::JoinToken> ReadJoinToken(const std::filesystem::path& file);

/// Whether the node with this state folder has joined by it.
bool HasJoinedBy(const tls::JoinToken& token, const std::filesystem::path& state_dir);

/// What a connection to imgd by TLS needs, PEM.
struct NodeTls {
  std::string ca;
  std::string certificate;
  std::string key;
};

/// Whether a certificate that was just made is good by this node's clock. Errors: kFailedPrecondition, with
/// how far the clock is off imgd's, which said `imgd_us`, microseconds since 1970 UTC.
Status CheckClock(const tls::CertificateFacts& facts, WallTime now, int64_t imgd_us);

/// This node's key and certificate, in the agent's state folder: joins by a token, or as an EC2 instance,
/// where it has none, and renews it by its key after two thirds of its time. Thread-safe; its calls take as
/// long as imgd takes to answer.
class NodeKey {
 public:
  struct Options {
    std::string server;  ///< host:port
    std::string node;
    std::string agent_id;
    std::filesystem::path folder;
    std::filesystem::path token_file;  ///< empty: no join token
    std::string ca_sha256 = {};        ///< of the CA that imgd is to have where it joins as an instance
    AskEc2 ask_ec2 = {};               ///< null: it joins by a token alone
    Duration patience = std::chrono::seconds(10);
  };

  NodeKey(Options options, const Clock* clock);

  /// What to connect with. Joins or renews first where that is due; a certificate that is still good is used
  /// though it could not be renewed. Errors, in words for the log: kFailedPrecondition where there is neither
  /// a certificate nor a token; kPermissionDenied where imgd refuses either, or is not the one that the token
  /// is for; kUnavailable. An instance that was refused asks again after half a minute, not each time.
  Result<NodeTls> Get();
  /// Whether imgd would renew the certificate; the new one is thrown away. Errors: as Get().
  Status TryRenewal();
  /// imgd did not take the certificate, or is not known by the CA that this node knows: the next Get() uses a
  /// token that was not used before, where there is one.
  void NoteRefused();
  /// How long until the certificate is due to be renewed; nothing where there is none.
  std::optional<Duration> UntilDue() const;
  /// Ends a call that waits, and makes those that follow fail.
  void Cancel();

 private:
  struct Files {
    std::filesystem::path key, certificate, ca, used;
  };
  void Load();
  /// When two thirds of the certificate's time are over; with the mutex held.
  WallTime Due() const;
  /// The join token, where one is named, is there and was not used.
  Result<std::optional<tls::JoinToken>> FreshToken() const;
  Status Join(const tls::JoinToken& token);
  /// By its identity document, unless imgd takes its key still. A certificate, where it ends well.
  Status JoinAsInstance();
  /// What both ways in have in common; `request` says who it is. Learns imgd's CA by its hash.
  Status Enrol(const std::string& ca_sha256, v1::EnrolRequest request);
  Result<v1::RenewResponse> AskForRenewal();
  Status Renew();
  Status Take(const std::string& certificate, int64_t time_us);
  template <typename Call>
  Status Ask(const std::string& ca, Call call);

  const Options options_;
  const Clock* clock_;
  Files files_;
  mutable std::mutex mutex_;  // guards all below but `calling_`
  NodeTls tls_;
  WallTime from_, until_;  ///< the certificate's
  bool refused_ = false;
  std::optional<Error> instance_refused_;  ///< why, the last time, and when
  Instant instance_refused_at_{};
  std::mutex calling_mutex_;  // guards all below
  grpc::ClientContext* calling_ = nullptr;
  bool cancelled_ = false;
};

}  // namespace imgd
