#pragma once

#include <optional>
#include <string>
#include <variant>

#include "common/clock.h"
#include "common/error.h"
#include "common/tls/pem.h"
#include "server/store/admission.h"

/// Who may join by TLS: what follows from what is stored. No clock, thread, file or socket.
namespace imgd {

inline constexpr int64_t kRenewableMicros =
    std::chrono::duration_cast<std::chrono::microseconds>(tls::kRenewable).count();

/// A node asks for its first certificate, or for the next one.
struct JoinOrder {
  std::string secret_hash;  ///< SHA-256 of the join token's secret; empty: the next one
  std::string node;
  std::string agent_id;  ///< of the first one
  std::string key_hash;  ///< of the key that signed its request
  std::string address;   ///< where it calls from
  WallTime expires;      ///< of the certificate that it would get
};

/// What is to be stored of a node that joins.
struct Joining {
  NodeKeyRecord key;
  std::optional<JoinTokenRecord> token;  ///< with one use less; nothing: none was taken
};

/// Errors: as EnrolService.Enrol.
Result<Joining> Join(const Admissions& admissions, const JoinOrder& order, WallTime now);
/// Errors: as EnrolService.Renew.
Result<NodeKeyRecord> Renew(const Admissions& admissions, const JoinOrder& order, WallTime now);
/// Whether the node may connect by a certificate for this key. Errors: kPermissionDenied.
Status MayConnect(const Admissions& admissions, const std::string& node, const std::string& key_hash);

/// Makes a join token, or takes one back, or a node's leave.
struct AdmissionOrder {
  enum class What { kMakeToken, kRevokeToken, kRevokeNode, kJoin } what = What::kJoin;
  JoinTokenRecord token = {};  ///< of kMakeToken; its id alone of kRevokeToken
  int64_t ttl_ms = 0;          ///< of kMakeToken
  std::string actor = {};      ///< of kRevokeNode
  JoinOrder join = {};         ///< of kJoin; its node alone of kRevokeNode
};

}  // namespace imgd
