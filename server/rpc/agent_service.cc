#include "server/rpc/agent_service.h"

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "server/rpc/errors.h"

namespace imgd {
namespace {

/// So many messages may wait for a slow agent; then its stream ends, and it says Hello anew.
constexpr size_t kMostWaiting = 1024;

/// One agent's stream. Deleted by gRPC through OnDone(); the engine holds a Link, which outlives it.
class AgentStream final : public grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse> {
 public:
  AgentStream(Engine* engine, grpc::CallbackServerContext* context)
      : engine_(engine),
        context_(context),
        session_(engine->NewSession()),
        link_(std::make_shared<Link>(this)) {
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
  std::mutex mutex_;  // guards all below
  v1::ConnectRequest request_;
  std::deque<v1::ConnectResponse> outbox_;  ///< the first is being written when writing_
  bool writing_ = false;
  std::optional<grpc::Status> end_;
  bool finished_ = false;
};

}  // namespace

grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>* AgentServiceImpl::Connect(
    grpc::CallbackServerContext* context) {
  return new AgentStream(engine_, context);
}

}  // namespace imgd
