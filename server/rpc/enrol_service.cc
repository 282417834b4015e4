#include "server/rpc/enrol_service.h"

#include <algorithm>

#include "common/tls/join_token.h"
#include "common/tls/pem.h"
#include "server/auth/tokens.h"
#include "server/rpc/errors.h"
#include "server/rpc/limits.h"

namespace imgd {
namespace {

constexpr int64_t kUsualTtlMs = 3600 * 1000;
constexpr uint64_t kMostTtlMs = 30ull * 24 * 3600 * 1000;
constexpr uint32_t kMostUses = 100'000;
constexpr size_t kMostRequestBytes = 16 << 10;

v1::JoinToken JoinTokenOf(const JoinTokenRecord& record) {
  v1::JoinToken out;
  out.set_id(record.id);
  out.set_owner(record.owner);
  out.set_uses(record.uses);
  out.set_uses_left(record.uses_left);
  out.set_created_us(record.created.micros);
  out.set_expires_us(record.expires.micros);
  for (const auto& use : record.joined) {
    auto* joined = out.add_joined();
    joined->set_node(use.node);
    joined->set_address(use.address);
    joined->set_time_us(use.at.micros);
  }
  return out;
}

Error PlainPort() {
  return {.code = ErrorCode::kFailedPrecondition,
          .message =
              "this imgd is served in plain text: its agents need no certificate, and join without a token",
          .hint = "listen in imgd.yaml names an address of the network, or tls.on_loopback is true"};
}

/// Of the machine that asked; else it is imgd that has too much to do, or can't store.
bool IsRefusal(const Error& error) {
  return error.code == ErrorCode::kPermissionDenied || error.code == ErrorCode::kAlreadyExists;
}

grpc::ServerUnaryReactor* FinishWith(grpc::ServerUnaryReactor* reactor, const Error& error) {
  reactor->Finish(ToStatus(error));
  return reactor;
}

Result<AdmissionOrder> JoinTokenOrder(const v1::CreateJoinTokenRequest& request, const std::string& hash) {
  IMGD_TRY(CheckLimits(request));
  const uint32_t uses = request.uses() == 0 ? 1 : request.uses();
  if (uses > kMostUses)
    return Fail(ErrorCode::kInvalidArgument, "uses: found {}; at most {} is allowed", uses, kMostUses);
  if (request.ttl_ms() > kMostTtlMs)
    return Fail(ErrorCode::kInvalidArgument, "ttl: found {} ms; at most 30 days is allowed",
                request.ttl_ms());
  return AdmissionOrder{
      .what = AdmissionOrder::What::kMakeToken,
      .token = {.id = hash.substr(0, 8),
                .hash = hash,
                .owner = request.owner().empty() ? "unknown" : request.owner(),
                .uses = uses,
                .uses_left = uses,
                .joined = {}},
      .ttl_ms = request.ttl_ms() == 0 ? kUsualTtlMs : static_cast<int64_t>(request.ttl_ms())};
}

}  // namespace

void EnrolServiceImpl::SetEc2Rules(std::shared_ptr<const Ec2Rules> rules) {
  const std::lock_guard lock(mutex_);
  ec2_ = std::move(rules);
}

/// Refused without troubling the core.
Status EnrolServiceImpl::LookAt(JoinOrder& order, const std::string& request_pem, WallTime now) {
  IMGD_ASSIGN(order.key_hash, tls::CheckRequest(request_pem));
  const auto admissions = engine_->View()->admissions;
  if (order.IsFirst()) {
    IMGD_TRY(imgd::Join(*admissions, order, now));
  } else {
    IMGD_TRY(imgd::Renew(*admissions, order, now));
  }
  return CheckNodeTime(order, now);
}

template <typename Response>
grpc::ServerUnaryReactor* EnrolServiceImpl::Certify(grpc::CallbackServerContext* context, JoinOrder order,
                                                    const std::string& request_pem, Response* response) {
  auto* reactor = context->DefaultReactor();
  if (authority_ == nullptr) return FinishWith(reactor, PlainPort());
  if (request_pem.size() > kMostRequestBytes || order.node.size() > 253 || order.agent_id.size() > 253) {
    return FinishWith(reactor, {.code = ErrorCode::kInvalidArgument, .message = "the request is too long"});
  }
  order.address = context->peer();
  const WallTime now = clock_->Wall();
  const auto lifetime = std::chrono::duration_cast<std::chrono::microseconds>(authority_->node_lifetime());
  order.expires = {now.micros + lifetime.count()};
  if (const auto good = LookAt(order, request_pem, now); !good) {
    NoteRefusal(order.address, order.node, good.error());
    return FinishWith(reactor, good.error());
  }
  auto certificate = authority_->SignNode(request_pem, order.node);
  if (!certificate) return FinishWith(reactor, certificate.error());
  const std::string peer = order.address;
  const std::string node = order.node;
  // It leaves once that is durable.
  engine_->ChangeAdmission({.join = std::move(order)},
                           [this, reactor, response, now, peer, node,
                            certificate = std::move(*certificate)](const Result<AdmissionAnswer>& answer) {
                             if (!answer && IsRefusal(answer.error()))
                               NoteRefusal(peer, node, answer.error());
                             if (answer) {
                               response->set_certificate_pem(certificate);
                               response->set_time_us(now.micros);
                             }
                             reactor->Finish(answer ? grpc::Status::OK : ToStatus(answer.error()));
                           });
  return reactor;
}

grpc::ServerUnaryReactor* EnrolServiceImpl::Enrol(grpc::CallbackServerContext* context,
                                                  const v1::EnrolRequest* request,
                                                  v1::EnrolResponse* response) {
  JoinOrder order{.secret_hash = HashOf(request->secret()),
                  .node = request->node(),
                  .agent_id = request->agent_id(),
                  .node_time = {request->time_us()}};
  if (request->has_ec2() && authority_ != nullptr) {
    auto claim = ClaimOf(request->ec2());
    if (!claim) {
      NoteRefusal(context->peer(), order.node, claim.error());
      return FinishWith(context->DefaultReactor(), claim.error());
    }
    order.secret_hash.clear();
    order.claim = std::move(*claim);
  }
  return Certify(context, std::move(order), request->request_pem(), response);
}

Result<InstanceClaim> EnrolServiceImpl::ClaimOf(const v1::Ec2Identity& identity) {
  std::shared_ptr<const Ec2Rules> rules;
  {
    const std::lock_guard lock(mutex_);
    rules = ec2_;
  }
  if (rules == nullptr) {
    return tl::unexpected(Error{.code = ErrorCode::kPermissionDenied,
                                .message = "this imgd lets no EC2 instances join by what EC2 says of them",
                                .hint = "ec2_join in imgd.yaml; or a token (imgcli node join-token)"});
  }
  IMGD_ASSIGN(auto instance, IdentifyInstance(*rules, identity.document(), identity.signature()));
  IMGD_TRY(CheckInstance(*rules, instance));
  return InstanceClaim{std::move(instance), rules->most_age};
}

void EnrolServiceImpl::NoteRefusal(const std::string& peer, const std::string& node, const Error& why) {
  const std::string address = peer.substr(0, peer.rfind(':'));
  const std::string who = fmt::format("a machine at {} that asked to join as {} was not let in", address,
                                      IsNodeName(node) ? "node " + node : "a node");
  const std::string said = fmt::format("{}: {}", who, why.message);
  // Of a clock that is wrong the words have the times, which are others at each try.
  const bool has_times = why.code == ErrorCode::kFailedPrecondition;
  const auto text = refusals_.Note(address, said, clock_->Now(), has_times ? who : said);
  if (!text) return;
  engine_->ChangeAdmission({.what = AdmissionOrder::What::kNoteRefusal, .refusal = *text},
                           [](const Result<AdmissionAnswer>&) {});
}

grpc::ServerUnaryReactor* EnrolServiceImpl::Renew(grpc::CallbackServerContext* context,
                                                  const v1::RenewRequest* request,
                                                  v1::RenewResponse* response) {
  return Certify(context, {.node = request->node(), .node_time = {request->time_us()}},
                 request->request_pem(), response);
}

grpc::ServerUnaryReactor* EnrolServiceImpl::CreateJoinToken(grpc::CallbackServerContext* context,
                                                            const v1::CreateJoinTokenRequest* request,
                                                            v1::CreateJoinTokenResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (authority_ == nullptr) return FinishWith(reactor, PlainPort());
  auto secret = NewSecret();
  if (!secret) return FinishWith(reactor, secret.error());
  auto order = JoinTokenOrder(*request, HashOf(*secret));
  if (!order) return FinishWith(reactor, order.error());
  engine_->ChangeAdmission(std::move(*order), [this, reactor, response, secret = std::move(*secret)](
                                                  const Result<AdmissionAnswer>& answer) {
    if (answer) {
      *response->mutable_token() = JoinTokenOf(answer->token);
      response->set_secret(tls::ToText({.secret = secret, .ca_sha256 = authority_->pin()}));
    }
    reactor->Finish(answer ? grpc::Status::OK : ToStatus(answer.error()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* EnrolServiceImpl::ListJoinTokens(grpc::CallbackServerContext* context,
                                                           const v1::ListJoinTokensRequest*,
                                                           v1::ListJoinTokensResponse* response) {
  auto* reactor = context->DefaultReactor();
  std::vector<const JoinTokenRecord*> tokens;
  const auto admissions = engine_->View()->admissions;
  for (const auto& [id, token] : admissions->tokens) tokens.push_back(&token);
  std::sort(tokens.begin(), tokens.end(),
            [](const auto* a, const auto* b) { return a->created > b->created; });
  for (const auto* token : tokens) *response->add_tokens() = JoinTokenOf(*token);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* EnrolServiceImpl::RevokeJoinToken(grpc::CallbackServerContext* context,
                                                            const v1::RevokeJoinTokenRequest* request,
                                                            v1::RevokeJoinTokenResponse*) {
  auto* reactor = context->DefaultReactor();
  AdmissionOrder order{.what = AdmissionOrder::What::kRevokeToken,
                       .token = {.id = request->id(), .joined = {}},
                       .actor = request->actor()};
  engine_->ChangeAdmission(std::move(order), [reactor](const Result<AdmissionAnswer>& answer) {
    reactor->Finish(answer ? grpc::Status::OK : ToStatus(answer.error()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* EnrolServiceImpl::RevokeNode(grpc::CallbackServerContext* context,
                                                       const v1::RevokeNodeRequest* request,
                                                       v1::RevokeNodeResponse*) {
  auto* reactor = context->DefaultReactor();
  if (const auto good = CheckLimits(*request); !good) return FinishWith(reactor, good.error());
  AdmissionOrder order{.what = AdmissionOrder::What::kRevokeNode,
                       .actor = request->actor().empty() ? "unknown" : request->actor(),
                       .join = {.node = request->name()},
                       .may_rejoin = request->may_rejoin()};
  engine_->ChangeAdmission(std::move(order), [reactor](const Result<AdmissionAnswer>& answer) {
    reactor->Finish(answer ? grpc::Status::OK : ToStatus(answer.error()));
  });
  return reactor;
}

}  // namespace imgd
