#include "server/engine/admission.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <ctime>

#include "common/utf8.h"
#include "server/core/explain.h"

namespace imgd {
namespace {

tl::unexpected<Error> Refuse(std::string message, std::string hint = "imgcli node join-token makes another") {
  return tl::unexpected(
      Error{.code = ErrorCode::kPermissionDenied, .message = std::move(message), .hint = std::move(hint)});
}

bool MayStillRenew(const NodeKeyRecord& key, WallTime now) {
  return !key.revoked && now.micros <= key.expires.micros + kRenewableMicros;
}

/// Of a name that was given to another key, for as long as that may be renewed.
Status CheckFree(const Admissions& admissions, const JoinOrder& order, WallTime now) {
  const auto known = admissions.nodes.find(order.node);
  if (known == admissions.nodes.end() || known->second.key_hash == order.key_hash) return {};
  if (!MayStillRenew(known->second, now)) return {};
  return tl::unexpected(Error{
      .code = ErrorCode::kAlreadyExists,
      .message = fmt::format("node {} has joined with another key already: two agents can't have one name",
                             order.node),
      .hint = fmt::format("another --node NAME here; or, where this machine takes that one's place, imgcli "
                          "node revoke {}",
                          order.node)});
}

NodeKeyRecord KeyOf(const JoinOrder& order, std::string by, WallTime now) {
  return {.node = order.node,
          .agent_id = order.agent_id,
          .key_hash = order.key_hash,
          .token = std::move(by),
          .joined = now,
          .expires = order.expires};
}

std::string WhyUsedUp(const JoinTokenRecord& token) {
  if (token.joined.size() < token.uses) return fmt::format("the join token {} was revoked", token.id);
  std::string nodes;
  for (const auto& use : token.joined) nodes += (nodes.empty() ? "" : ", ") + use.node;
  return fmt::format("the join token {} is used up: it was good for {} and {} joined by it", token.id,
                     token.uses, nodes);
}

/// The key that the instance joined with, where its node still has that one; else null.
const NodeKeyRecord* KeyOfInstance(const Admissions& admissions, const InstanceRecord& record) {
  const auto known = admissions.nodes.find(record.node);
  return known != admissions.nodes.end() && known->second.key_hash == record.key_hash ? &known->second
                                                                                      : nullptr;
}

/// Its node was away for so long that its key is good for nothing, and nobody revoked it.
bool HasLapsed(const Admissions& admissions, const InstanceRecord& record, WallTime now) {
  const NodeKeyRecord* key = KeyOfInstance(admissions, record);
  return record.leave == InstanceLeave::kUsed && (key == nullptr || !MayStillRenew(*key, now));
}

std::string DateText(WallTime time) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC",
                     fmt::gmtime(static_cast<std::time_t>(time.micros / 1'000'000)));
}

Status CheckAge(const InstanceClaim& claim, WallTime now) {
  const Duration age = std::chrono::microseconds(now.micros - claim.instance.started.micros);
  if (claim.most_age == Duration::zero() || age <= claim.most_age) return {};
  // Without its age, so that it is the same text each time.
  return Refuse(fmt::format("the EC2 instance {} was started at {}, and what EC2 says of it is good for {} "
                            "(ec2_join.max_age)",
                            claim.instance.id, DateText(claim.instance.started), TimeText(claim.most_age)),
                "stop it and start it again; or let it in by a token (imgcli node join-token)");
}

/// Once. But one whose node's time is over may do so again when it was started anew: that is another
/// document.
Status CheckOnce(const Admissions& admissions, const InstanceRecord& before, const Ec2Instance& instance,
                 WallTime now) {
  if (HasLapsed(admissions, before, now) && instance.started > before.instance.started) return {};
  const bool revoked = before.leave == InstanceLeave::kRevoked;
  return Refuse(revoked ? fmt::format("the EC2 instance {} was revoked, as node {}", instance.id, before.node)
                        : fmt::format("the EC2 instance {} has joined already, as node {}: what EC2 says of "
                                      "it is good for one agent, once",
                                      instance.id, before.node),
                fmt::format("imgcli node revoke {} --rejoin lets it join once more; a join token does too",
                            before.node));
}

/// Before anybody reads it in a log: whoever reaches the port chose it.
Status CheckName(const std::string& node) {
  if (IsNodeName(node)) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "found a node name of {} bytes that can't be one: 1 to 253 visible characters without '/' "
              "and ',' are needed",
              node.size());
}

/// "i-0123456789abcdef0": what a node is called whose instance was given no name.
bool LooksLikeInstance(const std::string& node) {
  return node.starts_with("i-") && node.size() > 2 &&
         node.find_first_not_of("0123456789abcdef", 2) == std::string::npos;
}

Result<Joining> JoinAsInstance(const Admissions& admissions, const JoinOrder& order, WallTime now) {
  const Ec2Instance& instance = order.claim->instance;
  Joining out{.key = KeyOf(order, instance.id, now), .token = {}};
  const auto before = admissions.instances.find(instance.id);
  const bool known = before != admissions.instances.end();
  if (known && before->second.leave == InstanceLeave::kUsed && before->second.node == order.node &&
      before->second.key_hash == order.key_hash && !HasLapsed(admissions, before->second, now))
    return out;  // its answer was lost
  if (LooksLikeInstance(order.node) && order.node != instance.id) {
    return Fail(ErrorCode::kInvalidArgument, "the EC2 instance {} can't be node {}: that is another's id",
                instance.id, order.node);
  }
  const bool may_rejoin =
      known && before->second.leave == InstanceLeave::kMayRejoin && before->second.node == order.node;
  if (!may_rejoin) {
    if (known) IMGD_TRY(CheckOnce(admissions, before->second, instance, now));
    IMGD_TRY(CheckAge(*order.claim, now));
  }
  IMGD_TRY(CheckFree(admissions, order, now));
  out.instance =
      InstanceRecord{.instance = instance, .node = order.node, .key_hash = order.key_hash, .joined = now};
  return out;
}

}  // namespace

std::vector<std::string> InstancesToRevoke(const Admissions& admissions, const std::string& node,
                                           bool may_rejoin) {
  std::vector<std::string> ids;
  for (const auto& [id, record] : admissions.instances) {
    if (record.node == node && (!may_rejoin || KeyOfInstance(admissions, record) != nullptr))
      ids.push_back(id);
  }
  return ids;
}

bool IsNodeName(std::string_view name) {
  return !name.empty() && name.size() <= 253 && !FindControl(name) &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return c > ' ' && c != 0x7f && c != '/' && c != ','; });
}

Result<Joining> Join(const Admissions& admissions, const JoinOrder& order, WallTime now) {
  IMGD_TRY(CheckName(order.node));
  if (order.claim) return JoinAsInstance(admissions, order, now);
  const auto found =
      std::find_if(admissions.tokens.begin(), admissions.tokens.end(),
                   [&order](const auto& entry) { return entry.second.hash == order.secret_hash; });
  if (found == admissions.tokens.end()) return Refuse("this imgd knows no such join token");
  JoinTokenRecord token = found->second;
  const auto known = admissions.nodes.find(order.node);
  const bool same_key = known != admissions.nodes.end() && known->second.key_hash == order.key_hash;
  NodeKeyRecord key = KeyOf(order, token.id, now);
  // Its answer was lost.
  if (same_key && MayStillRenew(known->second, now) && known->second.token == token.id)
    return Joining{std::move(key), {}};
  if (token.uses_left == 0) return Refuse(WhyUsedUp(token));
  if (token.expires <= now) return Refuse(fmt::format("the join token {} has expired", token.id));
  IMGD_TRY(CheckFree(admissions, order, now));
  --token.uses_left;
  token.joined.push_back({order.node, order.address, now});
  return Joining{std::move(key), std::move(token)};
}

Result<NodeKeyRecord> Renew(const Admissions& admissions, const JoinOrder& order, WallTime now) {
  IMGD_TRY(CheckName(order.node));
  IMGD_TRY(MayConnect(admissions, order.node, order.key_hash));
  NodeKeyRecord key = admissions.nodes.at(order.node);
  if (!MayStillRenew(key, now)) {
    return Refuse(fmt::format("the certificate of node {} ran out more than 7 days ago", order.node),
                  "join anew with a token (imgcli node join-token)");
  }
  key.expires = order.expires;
  return key;
}

Status CheckNodeTime(const JoinOrder& order, WallTime now) {
  const WallTime there = order.node_time;
  const int64_t backdated = std::chrono::duration_cast<std::chrono::microseconds>(tls::kBackdated).count();
  if (there.micros == 0 || (now.micros - backdated <= there.micros && there < order.expires)) return {};
  return tl::unexpected(
      Error{.code = ErrorCode::kFailedPrecondition,
            .message = fmt::format("the node's clock says {} and imgd's {}: by the node's, a certificate "
                                   "that is made now is not good",
                                   DateText(there), DateText(now)),
            .hint = "run NTP (chrony, systemd-timesyncd) on the node and on imgd's machine"});
}

Status MayConnect(const Admissions& admissions, const std::string& node, const std::string& key_hash) {
  const auto known = admissions.nodes.find(node);
  const std::string hint = "join anew with a token (imgcli node join-token)";
  if (known == admissions.nodes.end())
    return Refuse(fmt::format("node {} never joined this imgd", node), hint);
  if (known->second.key_hash != key_hash)
    return Refuse(fmt::format("another agent has joined as node {} since, with a key of its own", node),
                  hint);
  if (known->second.revoked) return Refuse(fmt::format("node {} was revoked", node), hint);
  return {};
}

std::vector<std::string> InstancesOfThePast(const Admissions& admissions, Duration most_age, WallTime now) {
  std::vector<std::string> out;
  if (most_age == Duration::zero()) return out;
  // Some more, so that somebody may allow documents of a greater age.
  const Duration kept = std::max<Duration>(most_age, std::chrono::days(30));
  const int64_t since = now.micros - std::chrono::duration_cast<std::chrono::microseconds>(kept).count();
  for (const auto& [id, record] : admissions.instances) {
    if (record.instance.started.micros < since && HasLapsed(admissions, record, now)) out.push_back(id);
  }
  return out;
}

}  // namespace imgd
