#include "server/rpc/agent_service.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <spdlog/spdlog.h>

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "server/auth/authority.h"
#include "server/engine/admission.h"
#include "server/rpc/errors.h"

namespace imgd {
namespace {

/// So many messages may wait for a slow agent; then its stream ends, and it says Hello anew.
constexpr size_t kMostWaiting = 1024;

/// One agent's stream. Deleted by gRPC through OnDone(); the engine holds a Link, which outlives it.
class AgentStream final : public grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse> {
 public:
  /// `node`: that of its certificate; empty where it needs none.
  AgentStream(Engine* engine, grpc::CallbackServerContext* context, std::string node)
      : engine_(engine),
        context_(context),
        session_(engine->NewSession()),
        link_(std::make_shared<Link>(this)),
        node_(std::move(node)) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      End(grpc::Status::OK);  // the agent has gone
      return;
    }
    v1::ConnectRequest message;
    {
      const std::lock_guard lock(mutex_);
      message = std::exchange(request_, {});
    }
    if (message.has_hello() && !node_.empty() && message.hello().node() != node_) {
      End({grpc::StatusCode::PERMISSION_DENIED,
           fmt::format("the certificate is that of node {}, and the agent calls itself {}: remove node.crt "
                       "and node.key "
                       "in its state folder and join anew with a token",
                       node_, message.hello().node())});
      return;
    }
    engine_->OnAgentMessage(link_, session_, std::move(message));
  }

  void OnWriteDone(bool ok) override {
    const v1::ConnectResponse* next = nullptr;
    std::optional<grpc::Status> end;
    {
      const std::lock_guard lock(mutex_);
      outbox_.pop_front();
      writing_ = false;
      if (!ok && !end_) end_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the stream broke");
      if (end_) {
        end = TakeEnd();
      } else if (!outbox_.empty()) {
        writing_ = true;
        next = &outbox_.front();
      }
    }
    if (end) Finish(*end);
    if (next != nullptr) StartWrite(next);
  }

  void OnCancel() override { End({grpc::StatusCode::CANCELLED, "the stream broke"}); }

  void OnDone() override {
    link_->Detach();
    engine_->OnAgentGone(session_);
    delete this;
  }

 private:
  /// What the engine holds: the stream as long as there is one.
  class Link final : public AgentLink {
   public:
    explicit Link(AgentStream* stream) : stream_(stream) {}
    void Send(v1::ConnectResponse message) override {
      const std::lock_guard lock(mutex_);
      if (stream_ != nullptr) stream_->Send(std::move(message));
    }
    void Close(Error why) override {
      const std::lock_guard lock(mutex_);
      if (stream_ != nullptr) stream_->End(ToStatus(why));
    }
    void Handled() override {
      const std::lock_guard lock(mutex_);
      if (stream_ != nullptr) stream_->ReadNext();
    }
    void Detach() {
      const std::lock_guard lock(mutex_);
      stream_ = nullptr;
    }

   private:
    std::mutex mutex_;
    AgentStream* stream_;  // guarded by mutex_
  };

  void Send(v1::ConnectResponse message) {
    const v1::ConnectResponse* first = nullptr;
    bool too_slow = false;
    {
      const std::lock_guard lock(mutex_);
      if (end_) return;
      too_slow = outbox_.size() >= kMostWaiting;
      if (!too_slow) {
        outbox_.push_back(std::move(message));
        if (!writing_) {
          writing_ = true;
          first = &outbox_.front();
        }
      }
    }
    // It does not read: a status would not reach it either.
    if (too_slow) context_->TryCancel();
    if (first != nullptr) StartWrite(first);
  }

  void ReadNext() {
    // Under the lock: no read may begin after the stream's end, which is set under it.
    const std::lock_guard lock(mutex_);
    if (!end_) StartRead(&request_);
  }

  /// Ends the stream once; the first status counts. A write that is under way is waited for.
  void End(const grpc::Status& status) {
    std::optional<grpc::Status> end;
    {
      const std::lock_guard lock(mutex_);
      if (end_) return;
      end_ = status;
      if (!writing_) end = TakeEnd();
    }
    if (end) Finish(*end);
  }

  std::optional<grpc::Status> TakeEnd() { return std::exchange(finished_, true) ? std::nullopt : end_; }

  Engine* engine_;
  grpc::CallbackServerContext* context_;
  uint64_t session_;
  std::shared_ptr<Link> link_;
  const std::string node_;
  std::mutex mutex_;  // guards all below
  v1::ConnectRequest request_;
  std::deque<v1::ConnectResponse> outbox_;  ///< the first is being written when writing_
  bool writing_ = false;
  std::optional<grpc::Status> end_;
  bool finished_ = false;
};

/// Ends at once.
class RefusedStream final : public grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse> {
 public:
  explicit RefusedStream(const Error& why) { Finish(ToStatus(why)); }
  void OnDone() override { delete this; }
};

}  // namespace

Result<std::string> CertifiedNode(const grpc::CallbackServerContext& context, const Engine& engine) {
  const auto uris = context.auth_context()->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME);
  const std::string uri = uris.empty() ? "" : std::string(uris.front().data(), uris.front().size());
  IMGD_ASSIGN(NodeIdentity identity, IdentityOf(uri));
  IMGD_TRY(MayConnect(*engine.View()->admissions, identity.node, identity.key_sha256));
  return std::move(identity.node);
}

grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>* AgentServiceImpl::Connect(
    grpc::CallbackServerContext* context) {
  std::string node;
  if (tls_) {
    auto found = CertifiedNode(*context, *engine_);
    if (!found) {
      const std::string peer = context->peer();
      const std::string address = peer.substr(0, peer.rfind(':'));
      const auto text = refusals_.Note(address, fmt::format("agent refused: {}", found.error().message),
                                       std::chrono::steady_clock::now());
      if (text) spdlog::warn("peer={} msg=\"{}\"", peer, *text);
      return new RefusedStream(found.error());
    }
    node = std::move(*found);
  }
  return new AgentStream(engine_, context, std::move(node));
}

}  // namespace imgd
