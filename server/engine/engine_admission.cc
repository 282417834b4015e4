#include <spdlog/spdlog.h>

#include "server/engine/engine.h"

/// Join tokens and nodes' keys.
namespace imgd {

void Engine::ChangeAdmission(AdmissionOrder order, std::function<void(Result<AdmissionAnswer>)> done) {
  PushOrRefuse<AdmissionInput>(std::move(order), std::move(done));
}

Result<AdmissionAnswer> Engine::MakeJoinToken(AdmissionOrder& order) {
  JoinTokenRecord& token = order.token;
  if (admissions_.tokens.contains(token.id))
    return Fail(ErrorCode::kAlreadyExists, "there is a join token {} already; try again", token.id);
  token.created = now_.wall;
  token.expires = {now_.wall.micros + order.ttl_ms * 1000};
  // Those that nobody could use for long are of no interest any more.
  for (auto old = admissions_.tokens.begin(); old != admissions_.tokens.end();) {
    if (old->second.expires.micros + 30 * 24 * 3600 * int64_t{1'000'000} > now_.wall.micros) {
      ++old;
      continue;
    }
    state_.RemoveJoinToken(old->first);
    old = admissions_.tokens.erase(old);
  }
  admissions_.tokens[token.id] = token;
  state_.SaveJoinToken(token);
  NoteCredential(token.owner, fmt::format("made the join token {} for {} node{}", token.id, token.uses,
                                          token.uses == 1 ? "" : "s"));
  return AdmissionAnswer{.token = token};
}

Result<AdmissionAnswer> Engine::RevokeJoinToken(const AdmissionOrder& order) {
  const std::string& id = order.token.id;
  const auto known = admissions_.tokens.find(id);
  if (known == admissions_.tokens.end()) return Fail(ErrorCode::kNotFound, "there is no join token '{}'", id);
  known->second.uses_left = 0;
  state_.SaveJoinToken(known->second);
  NoteCredential(order.actor, fmt::format("took back the join token {}", id));
  return AdmissionAnswer{.token = known->second};
}

Result<AdmissionAnswer> Engine::RevokeNode(const AdmissionOrder& order) {
  const auto known = admissions_.nodes.find(order.join.node);
  if (known == admissions_.nodes.end())
    return Fail(ErrorCode::kNotFound, "no node '{}' has joined by a token or as an EC2 instance",
                order.join.node);
  if (!RevokeInstances(order) && order.may_rejoin) {
    return Fail(ErrorCode::kFailedPrecondition,
                "node {} did not join as an EC2 instance, so that there is nothing to let it join by again",
                order.join.node);
  }
  known->second.revoked = true;
  state_.SaveNodeKey(known->second);
  const Error why{.code = ErrorCode::kPermissionDenied,
                  .message = fmt::format("node {} was revoked", order.join.node)};
  for (const auto& [session, connected] : links_) {
    if (connected.node.name() != order.join.node) continue;
    done_.push_back([link = connected.link, why](const Status&) { link->Close(why); });
  }
  NoteCredential(order.actor, fmt::format("revoked node {}", order.join.node), NodeId(order.join.node));
  return AdmissionAnswer{.key = known->second};
}

/// Of those that joined as this node; whether there are any.
bool Engine::RevokeInstances(const AdmissionOrder& order) {
  const auto ids = InstancesToRevoke(admissions_, order.join.node, order.may_rejoin);
  for (const auto& id : ids) {
    InstanceRecord& record = admissions_.instances[id];
    record.leave = order.may_rejoin ? InstanceLeave::kMayRejoin : InstanceLeave::kRevoked;
    state_.SaveInstance(record);
  }
  return !ids.empty();
}

void Engine::TakeInstance(const InstanceRecord& record, Duration most_age) {
  for (const auto& id : InstancesOfThePast(admissions_, most_age, now_.wall)) {
    state_.RemoveInstance(id);
    admissions_.instances.erase(id);
  }
  admissions_.instances[record.instance.id] = record;
  state_.SaveInstance(record);
  AppendDecision({.node = NodeId(record.node),
                  .reason = {ReasonCode::kNodeJoined,
                             fmt::format("the EC2 instance {} of account {} in {} has joined as node {}",
                                         record.instance.id, record.instance.account, record.instance.region,
                                         record.node)},
                  .actor = "agent:" + record.node,
                  .time = now_.wall});
}

Result<AdmissionAnswer> Engine::TakeJoin(const JoinOrder& order) {
  AdmissionAnswer answer;
  if (!order.IsFirst()) {
    IMGD_ASSIGN(answer.key, Renew(admissions_, order, now_.wall));
  } else {
    IMGD_ASSIGN(Joining joining, Join(admissions_, order, now_.wall));
    answer.key = std::move(joining.key);
    if (joining.token) {
      state_.SaveJoinToken(*joining.token);
      state_.SaveJoinUse(joining.token->id, joining.token->joined.back());
      admissions_.tokens[joining.token->id] = std::move(*joining.token);
    }
    if (joining.instance) TakeInstance(*joining.instance, order.claim->most_age);
    spdlog::info("node={} token={} address={} msg=\"the node joined\"", order.node, answer.key.token,
                 order.address);
  }
  state_.SaveNodeKey(answer.key);
  admissions_.nodes[order.node] = answer.key;
  return answer;
}

void Engine::NoteCredential(const std::string& who, const std::string& did, NodeId node) {
  const std::string actor = who.empty() ? "unknown" : who;
  AppendDecision({.node = std::move(node),
                  .reason = {ReasonCode::kAdministered, fmt::format("{} {}", actor, did)},
                  .actor = actor == "imgd" ? actor : "user:" + actor,
                  .time = now_.wall});
  spdlog::info("msg=\"{} {}\"", actor, did);
}

void Engine::NoteRefusal(const std::string& text) {
  AppendDecision({.reason = {ReasonCode::kJoinRefused, text}, .actor = "imgd", .time = now_.wall});
  spdlog::warn("msg=\"{}\"", text);
}

void Engine::Handle(AdmissionInput& input) {
  view_changed_ = view_urgent_ = true;
  const auto take = [&]() -> Result<AdmissionAnswer> {
    switch (input.order.what) {
      case AdmissionOrder::What::kMakeToken:
        return MakeJoinToken(input.order);
      case AdmissionOrder::What::kRevokeToken:
        return RevokeJoinToken(input.order);
      case AdmissionOrder::What::kRevokeNode:
        return RevokeNode(input.order);
      case AdmissionOrder::What::kJoin:
        return TakeJoin(input.order.join);
      case AdmissionOrder::What::kNoteRefusal:
        NoteRefusal(input.order.refusal);
        return AdmissionAnswer{};
    }
    return Fail(ErrorCode::kInternal, "an order of an unknown kind");
  };
  AnswerLater<AdmissionAnswer>(std::move(input.done), take());
}

}  // namespace imgd
