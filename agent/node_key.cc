#include "agent/node_key.h"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>

#include "agent/network.h"
#include "common/files.h"
#include "common/sha256.h"
#include "common/text.h"
#include "common/tls/pem.h"
#include "common/tls/probe.h"
#include "imgd/v1/enrol.grpc.pb.h"

namespace imgd {
namespace {

constexpr size_t kMostFileBytes = size_t{1} << 20;

std::string OrEmpty(Result<std::string> text) { return text ? std::move(*text) : std::string(); }

Error FromAnswer(const grpc::Status& status, const std::string& server) {
  const std::string words =
      fmt::format("imgd at {} does not let this node join: {}", server, status.error_message());
  switch (status.error_code()) {
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
      return {.code = ErrorCode::kPermissionDenied, .message = words};
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::UNIMPLEMENTED:
      return {.code = ErrorCode::kFailedPrecondition, .message = words};
    default:
      return {.code = ErrorCode::kUnavailable,
              .message = fmt::format("imgd at {} can't be asked for a certificate: {}", server,
                                     status.error_message())};
  }
}

std::filesystem::path UsedFile(const std::filesystem::path& state_dir) {
  return state_dir / "join-token.used";
}

}  // namespace

Result<tls::JoinToken> ReadJoinToken(const std::filesystem::path& file) {
  IMGD_ASSIGN(const auto text, ReadFile(file, kMostFileBytes));
  auto token = tls::ParseJoinToken(text);
  if (!token) token.error().message = fmt::format("{}: {}", file.native(), token.error().message);
  return token;
}

bool HasJoinedBy(const tls::JoinToken& token, const std::filesystem::path& state_dir) {
  return Trimmed(OrEmpty(ReadFile(UsedFile(state_dir), kMostFileBytes)), "\n") == Sha256Of(token.secret);
}

NodeKey::NodeKey(Options options, const Clock* clock) : options_(std::move(options)), clock_(clock) {
  files_ = {.key = options_.folder / "node.key",
            .certificate = options_.folder / "node.crt",
            .ca = options_.folder / "ca.crt",
            .used = UsedFile(options_.folder)};
  Load();
}

void NodeKey::Load() {
  tls_ = {.ca = OrEmpty(ReadFile(files_.ca, kMostFileBytes)),
          .certificate = OrEmpty(ReadFile(files_.certificate, kMostFileBytes)),
          .key = OrEmpty(ReadFile(files_.key, kMostFileBytes))};
  const auto facts = tls::FactsOf(tls_.certificate);
  const auto hash = tls::PublicHashOf(tls_.key);
  if (!facts || !hash || facts->key_sha256 != *hash || tls_.ca.empty()) {
    tls_ = {};
    return;
  }
  from_ = facts->not_before;
  until_ = facts->not_after;
}

Result<std::optional<tls::JoinToken>> NodeKey::FreshToken() const {
  if (options_.token_file.empty()) return std::nullopt;
  auto token = ReadJoinToken(options_.token_file);
  // It may be removed once the node has joined.
  if (!token && token.error().code == ErrorCode::kNotFound) return std::nullopt;
  if (!token) return tl::unexpected(std::move(token).error());
  if (HasJoinedBy(*token, options_.folder)) return std::nullopt;
  return std::optional(std::move(*token));
}

Result<NodeTls> NodeKey::Get() {
  const std::lock_guard lock(mutex_);
  const bool has = !tls_.certificate.empty();
  if (!has || refused_) {
    IMGD_ASSIGN(const auto token, FreshToken());
    if (token) {
      IMGD_TRY(Join(*token));
      return tls_;
    }
    if (options_.ask_ec2) {
      IMGD_TRY(JoinAsInstance());
      return tls_;
    }
    if (!has) {
      return tl::unexpected(Error{
          .code = ErrorCode::kFailedPrecondition,
          .message =
              fmt::format("this node has not joined imgd at {}, and has no join token", options_.server),
          .hint =
              "imgcli node join-token makes one; --token-file FILE, or token_file in agent.yaml, names it"});
    }
  }
  const WallTime now = clock_->Wall();
  if (now < Due()) return tls_;
  const auto renewed = Renew();
  if (renewed) return tls_;
  if (renewed.error().code == ErrorCode::kPermissionDenied) {
    refused_ = true;
    return tl::unexpected(renewed.error());
  }
  if (until_ <= now) return tl::unexpected(renewed.error());
  spdlog::warn("node={} msg=\"the certificate could not be renewed: {}\"", options_.node,
               renewed.error().message);
  return tls_;
}

void NodeKey::NoteRefused() {
  const std::lock_guard lock(mutex_);
  refused_ = true;
}

std::optional<Duration> NodeKey::UntilDue() const {
  const std::lock_guard lock(mutex_);
  if (tls_.certificate.empty()) return std::nullopt;
  return std::chrono::microseconds(std::max<int64_t>(0, Due().micros - clock_->Wall().micros));
}

WallTime NodeKey::Due() const {
  const int64_t begun =
      from_.micros + std::chrono::duration_cast<std::chrono::microseconds>(tls::kBackdated).count();
  return {begun + (until_.micros - begun) * 2 / 3};
}

void NodeKey::Cancel() {
  const std::lock_guard lock(calling_mutex_);
  cancelled_ = true;
  if (calling_ != nullptr) calling_->TryCancel();
}

template <typename Call>
Status NodeKey::Ask(const std::string& ca, Call call) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const auto channel = grpc::CreateCustomChannel(
      options_.server,
      grpc::SslCredentials({.pem_root_certs = ca, .pem_private_key = "", .pem_cert_chain = ""}), arguments);
  const auto stub = v1::EnrolService::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + options_.patience);
  {
    const std::lock_guard lock(calling_mutex_);
    if (cancelled_) return Fail(ErrorCode::kCancelled, "the agent ends");
    calling_ = &context;
  }
  const grpc::Status status = call(*stub, context);
  {
    const std::lock_guard lock(calling_mutex_);
    calling_ = nullptr;
  }
  if (status.ok()) return {};
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    IMGD_ASSIGN(const HostPort where, ParseHostPort(options_.server));
    if (auto why = tls::WhyNoTls({.host = where.host, .port = where.port, .ca = ca}, *clock_))
      return tl::unexpected(std::move(*why));
  }
  return tl::unexpected(FromAnswer(status, options_.server));
}

Status NodeKey::Join(const tls::JoinToken& token) {
  v1::EnrolRequest request;
  request.set_secret(token.secret);
  IMGD_TRY(Enrol(token.ca_sha256, std::move(request)));
  IMGD_TRY(tls::WriteSecretFile(files_.used, Sha256Of(token.secret) + "\n"));
  spdlog::info("node={} server={} msg=\"joined by a token; the certificate is in {}\"", options_.node,
               options_.server, files_.certificate.native());
  return {};
}

Status NodeKey::JoinAsInstance() {
  constexpr Duration kPause = std::chrono::seconds(30);
  if (instance_refused_ && clock_->Now() < instance_refused_at_ + kPause)
    return tl::unexpected(*instance_refused_);
  // An instance joins once: its key is given up only when imgd itself says that it is good for nothing.
  if (!tls_.certificate.empty()) {
    const auto renewed = Renew();
    if (renewed) refused_ = false;
    if (renewed || renewed.error().code != ErrorCode::kPermissionDenied) return renewed;
  }
  IMGD_ASSIGN(const Ec2Identity identity, options_.ask_ec2());
  v1::EnrolRequest request;
  request.mutable_ec2()->set_document(identity.document);
  request.mutable_ec2()->set_signature(identity.signature);
  if (auto joined = Enrol(options_.ca_sha256, std::move(request)); !joined) {
    if (joined.error().code != ErrorCode::kUnavailable) {
      instance_refused_ = joined.error();
      instance_refused_at_ = clock_->Now();
    }
    return joined;
  }
  instance_refused_.reset();
  spdlog::info("node={} server={} msg=\"joined as the EC2 instance {}; the certificate is in {}\"",
               options_.node, options_.server, identity.instance, files_.certificate.native());
  return {};
}

Status NodeKey::Enrol(const std::string& ca_sha256, v1::EnrolRequest request) {
  IMGD_ASSIGN(const HostPort where, ParseHostPort(options_.server));
  IMGD_ASSIGN(const auto chain, tls::FetchChain({.host = where.host, .port = where.port}));
  IMGD_ASSIGN(const std::string ca, tls::FindPinned(chain, ca_sha256, options_.server));
  // A new key: who had the old one, with an old token, has no part in what this one is good for. It is kept
  // before it is used, so that a lost answer is asked for again with the same.
  std::string key = OrEmpty(ReadFile(files_.key, kMostFileBytes));
  if (refused_ || !tls::PublicHashOf(key)) {
    IMGD_ASSIGN(key, tls::NewKey());
    IMGD_TRY(tls::WriteSecretFile(files_.key, key));
    tls_.certificate.clear();
    refused_ = false;
  }
  tls_.key = key;
  request.set_node(options_.node);
  request.set_agent_id(options_.agent_id);
  request.set_time_us(clock_->Wall().micros);
  IMGD_ASSIGN(*request.mutable_request_pem(), tls::MakeRequest(key));
  v1::EnrolResponse response;
  IMGD_TRY(Ask(ca, [&](auto& stub, auto& context) { return stub.Enrol(&context, request, &response); }));
  IMGD_TRY(tls::WriteSecretFile(files_.ca, ca));
  tls_.ca = ca;
  return Take(response.certificate_pem(), response.time_us());
}

Status NodeKey::TryRenewal() {
  const std::lock_guard lock(mutex_);
  IMGD_TRY(AskForRenewal());
  return {};
}

Result<v1::RenewResponse> NodeKey::AskForRenewal() {
  v1::RenewRequest request;
  request.set_node(options_.node);
  request.set_time_us(clock_->Wall().micros);
  IMGD_ASSIGN(*request.mutable_request_pem(), tls::MakeRequest(tls_.key));
  v1::RenewResponse response;
  IMGD_TRY(Ask(tls_.ca, [&](auto& stub, auto& context) { return stub.Renew(&context, request, &response); }));
  return response;
}

Status NodeKey::Renew() {
  IMGD_ASSIGN(const v1::RenewResponse response, AskForRenewal());
  IMGD_TRY(Take(response.certificate_pem(), response.time_us()));
  spdlog::info("node={} msg=\"the certificate was renewed\"", options_.node);
  return {};
}

Status NodeKey::Take(const std::string& certificate, int64_t time_us) {
  IMGD_ASSIGN(const auto facts, tls::FactsOf(certificate));
  IMGD_TRY(CheckClock(facts, clock_->Wall(), time_us));
  IMGD_TRY(tls::WriteSecretFile(files_.certificate, certificate));
  tls_.certificate = certificate;
  from_ = facts.not_before;
  until_ = facts.not_after;
  return {};
}

Status CheckClock(const tls::CertificateFacts& facts, WallTime now, int64_t imgd_us) {
  if (facts.not_before <= now && now < facts.not_after) return {};
  const int64_t off_seconds = (now.micros - imgd_us) / 1'000'000;
  return tl::unexpected(Error{
      .code = ErrorCode::kFailedPrecondition,
      .message = fmt::format("this node's clock is {} s {} imgd's: by it, the new certificate is not good",
                             std::abs(off_seconds), off_seconds < 0 ? "behind" : "ahead of"),
      .hint = "run NTP (chrony, systemd-timesyncd) here and on imgd's machine"});
}

}  // namespace imgd
