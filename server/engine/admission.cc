#include "server/engine/admission.h"

#include <algorithm>

namespace imgd {
namespace {

tl::unexpected<Error> Refuse(std::string message, std::string hint = "imgcli node join-token makes another") {
  return tl::unexpected(
      Error{.code = ErrorCode::kPermissionDenied, .message = std::move(message), .hint = std::move(hint)});
}

bool MayStillRenew(const NodeKeyRecord& key, WallTime now) {
  return !key.revoked && now.micros <= key.expires.micros + kRenewableMicros;
}

std::string WhyUsedUp(const JoinTokenRecord& token) {
  if (token.joined.size() < token.uses) return fmt::format("the join token {} was revoked", token.id);
  std::string nodes;
  for (const auto& use : token.joined) nodes += (nodes.empty() ? "" : ", ") + use.node;
  return fmt::format("the join token {} is used up: it was good for {} and {} joined by it", token.id,
                     token.uses, nodes);
}

}  // namespace

Result<Joining> Join(const Admissions& admissions, const JoinOrder& order, WallTime now) {
  const auto found =
      std::find_if(admissions.tokens.begin(), admissions.tokens.end(),
                   [&order](const auto& entry) { return entry.second.hash == order.secret_hash; });
  if (found == admissions.tokens.end()) return Refuse("this imgd knows no such join token");
  JoinTokenRecord token = found->second;
  const auto known = admissions.nodes.find(order.node);
  const bool same_key = known != admissions.nodes.end() && known->second.key_hash == order.key_hash;
  NodeKeyRecord key{.node = order.node,
                    .agent_id = order.agent_id,
                    .key_hash = order.key_hash,
                    .token = token.id,
                    .joined = now,
                    .expires = order.expires};
  // Its answer was lost.
  if (same_key && !known->second.revoked && known->second.token == token.id)
    return Joining{std::move(key), {}};
  if (token.uses_left == 0) return Refuse(WhyUsedUp(token));
  if (token.expires <= now) return Refuse(fmt::format("the join token {} has expired", token.id));
  if (known != admissions.nodes.end() && !same_key && MayStillRenew(known->second, now)) {
    return tl::unexpected(Error{
        .code = ErrorCode::kAlreadyExists,
        .message = fmt::format("node {} has joined with another key already: two agents can't have one name",
                               order.node),
        .hint = fmt::format("another --node NAME here; or, where this machine takes that one's place, imgcli "
                            "node revoke {}",
                            order.node)});
  }
  --token.uses_left;
  token.joined.push_back({order.node, order.address, now});
  return Joining{std::move(key), std::move(token)};
}

Result<NodeKeyRecord> Renew(const Admissions& admissions, const JoinOrder& order, WallTime now) {
  IMGD_TRY(MayConnect(admissions, order.node, order.key_hash));
  NodeKeyRecord key = admissions.nodes.at(order.node);
  if (!MayStillRenew(key, now)) {
    return Refuse(fmt::format("the certificate of node {} ran out more than 7 days ago", order.node),
                  "join anew with a token (imgcli node join-token)");
  }
  key.expires = order.expires;
  return key;
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

}  // namespace imgd
