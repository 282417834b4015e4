#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/error.h"
#include "common/tls/pem.h"
#include "server/store/admission.h"

/// Who may join by TLS: what follows from what is stored. No clock, thread, file or socket.
namespace imgd {

inline constexpr int64_t kRenewableMicros =
    std::chrono::duration_cast<std::chrono::microseconds>(tls::kRenewable).count();

/// What a node may be called in all that comes in: 1 to 253 visible characters without '/' and ','.
bool IsNodeName(std::string_view name);

/// An EC2 instance that its document has proved to be one that the operator lets in, if it is new.
struct InstanceClaim {
  Ec2Instance instance;
  Duration most_age{};  ///< since it was started; zero: it does not matter
};

/// A node asks for its first certificate, or for the next one.
struct JoinOrder {
  std::string secret_hash;  ///< SHA-256 of the join token's secret; empty, without an instance: the next one
  std::string node;
  std::string agent_id;                     ///< of the first one
  std::string key_hash;                     ///< of the key that signed its request
  std::string address;                      ///< where it calls from
  WallTime expires;                         ///< of the certificate that it would get
  WallTime node_time = {};                  ///< by the node's clock; zero where it does not say
  std::optional<InstanceClaim> claim = {};  ///< in place of the token

  bool IsFirst() const { return claim || !secret_hash.empty(); }
};

/// What is to be stored of a node that joins.
struct Joining {
  NodeKeyRecord key;
  std::optional<JoinTokenRecord> token;         ///< with one use less; nothing: none was taken
  std::optional<InstanceRecord> instance = {};  ///< nothing where it came without, or is stored as it is
};

/// By a token, or as an instance. Errors: as EnrolService.Enrol.
Result<Joining> Join(const Admissions& admissions, const JoinOrder& order, WallTime now);
/// Errors: as EnrolService.Renew.
Result<NodeKeyRecord> Renew(const Admissions& admissions, const JoinOrder& order, WallTime now);
/// Whether the certificate that it would get, from tls::kBackdated before `now` on, is good by the node's
/// clock: with another the node would be let in and never connect. Errors: kFailedPrecondition, with both
/// times.
Status CheckNodeTime(const JoinOrder& order, WallTime now);
/// Whether the node may connect by a certificate for this key. Errors: kPermissionDenied.
Status MayConnect(const Admissions& admissions, const std::string& node, const std::string& key_hash);

/// Instances that joined so long ago that their documents of then are good for nothing, and whose nodes' time
/// is over: whether they are known does not matter any more.
std::vector<std::string> InstancesOfThePast(const Admissions& admissions, Duration most_age, WallTime now);

/// Of the instances that joined as this node, by id, those whose leave goes with it; `may_rejoin`: the one
/// that is the node still, since who had the name before it may have been put out for good.
std::vector<std::string> InstancesToRevoke(const Admissions& admissions, const std::string& node,
                                           bool may_rejoin);

/// Makes a join token, or takes one back, or a node's leave.
struct AdmissionOrder {
  enum class What { kMakeToken, kRevokeToken, kRevokeNode, kJoin, kNoteRefusal } what = What::kJoin;
  JoinTokenRecord token = {};  ///< of kMakeToken; its id alone of kRevokeToken
  int64_t ttl_ms = 0;          ///< of kMakeToken
  std::string actor = {};      ///< who asks, a name; of what people ask
  JoinOrder join = {};         ///< of kJoin; its node alone of kRevokeNode
  bool may_rejoin = false;     ///< of kRevokeNode: by its identity as an instance
  std::string refusal = {};    ///< of kNoteRefusal: who was refused and why
};

}  // namespace imgd
