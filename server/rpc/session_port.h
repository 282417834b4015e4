#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "common/clock.h"

namespace imgd {

/// What a session's relay holds of one of its two streams. Thread-safe; nothing happens once the stream is
/// gone.
template <typename Out>
class SessionPort {
 public:
  virtual ~SessionPort() = default;
  /// Sends after what was sent before; `sent` is called once the next may come.
  virtual void Send(Out message, std::function<void()> sent) = 0;
  /// The next message is wanted: they come one at a time.
  virtual void ReadNext() = 0;
  /// Ends the stream once what was sent is on its way; the first status counts.
  virtual void End(grpc::Status status) = 0;
  /// As End(OK), but what the other side does not take is not waited for.
  virtual void Break() = 0;
};

/// One of the two streams of a session. Deletes itself when it has ended; the relay holds a port, which
/// outlives it.
template <typename In, typename Out>
class SessionStream final : public grpc::ServerBidiReactor<In, Out> {
 public:
  struct Handlers {
    std::function<void(In)> on_message;
    std::function<void()> on_gone;  ///< the last call
  };

  /// The first message is read once Begin() is called. `context`: the call's.
  explicit SessionStream(grpc::CallbackServerContext* context)
      : context_(context), port_(std::make_shared<Port>(this)) {}

  std::shared_ptr<SessionPort<Out>> port() const { return port_; }
  void Begin(Handlers handlers) {
    handlers_ = std::move(handlers);
    ReadNext();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      End(grpc::Status::OK);  // it says no more, or has gone
      return;
    }
    In message;
    {
      const std::lock_guard lock(mutex_);
      message = std::exchange(request_, {});
    }
    handlers_.on_message(std::move(message));
  }

  void OnWriteDone(bool ok) override {
    const Out* next = nullptr;
    std::optional<grpc::Status> end;
    std::function<void()> sent;
    {
      const std::lock_guard lock(mutex_);
      sent = std::move(outbox_.front().sent);
      outbox_.pop_front();
      writing_ = false;
      if (!ok) {
        outbox_.clear();
        if (!end_) end_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the stream broke");
      }
      if (!outbox_.empty()) {
        writing_ = true;
        next = &outbox_.front().message;
      } else if (end_) {
        end = TakeEnd();
      }
    }
    if (next != nullptr) this->StartWrite(next);
    if (end) this->Finish(*end);
    if (ok && sent) sent();
  }

  void OnCancel() override {
    {
      // What waits reaches nobody.
      const std::lock_guard lock(mutex_);
      while (outbox_.size() > (writing_ ? 1 : 0)) outbox_.pop_back();
    }
    End({grpc::StatusCode::CANCELLED, "the stream broke"});
  }

  void OnDone() override {
    port_->Detach();
    if (handlers_.on_gone) handlers_.on_gone();
    delete this;
  }

 private:
  struct Waiting {
    Out message;
    std::function<void()> sent;
  };

  class Port final : public SessionPort<Out> {
   public:
    explicit Port(SessionStream* stream) : stream_(stream) {}
    void Send(Out message, std::function<void()> sent) override {
      const std::lock_guard lock(mutex_);
      if (stream_ != nullptr) stream_->Send({std::move(message), std::move(sent)});
    }
    void ReadNext() override {
      const std::lock_guard lock(mutex_);
      if (stream_ != nullptr) stream_->ReadNext();
    }
    void End(grpc::Status status) override {
      const std::lock_guard lock(mutex_);
      if (stream_ != nullptr) stream_->End(status);
    }
    void Break() override {
      const std::lock_guard lock(mutex_);
      if (stream_ != nullptr) stream_->Break();
    }
    void Detach() {
      const std::lock_guard lock(mutex_);
      stream_ = nullptr;
    }

   private:
    std::mutex mutex_;
    SessionStream* stream_;  // guarded by mutex_
  };

  void Send(Waiting waiting) {
    const Out* first = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (end_) return;
      outbox_.push_back(std::move(waiting));
      if (!writing_) {
        writing_ = true;
        first = &outbox_.front().message;
      }
    }
    if (first != nullptr) this->StartWrite(first);
  }

  void ReadNext() {
    // Under the lock: no read may begin after the stream's end, which is set under it.
    const std::lock_guard lock(mutex_);
    if (!end_) this->StartRead(&request_);
  }

  void End(const grpc::Status& status) {
    std::optional<grpc::Status> end;
    {
      const std::lock_guard lock(mutex_);
      if (end_) return;
      end_ = status;
      if (!writing_) end = TakeEnd();
    }
    if (end) this->Finish(*end);
  }

  void Break() {
    End(grpc::Status::OK);
    bool waits = false;
    {
      const std::lock_guard lock(mutex_);
      waits = writing_;
    }
    if (waits) context_->TryCancel();  // for as long as the other side reads nothing
  }

  std::optional<grpc::Status> TakeEnd() { return std::exchange(finished_, true) ? std::nullopt : end_; }

  grpc::CallbackServerContext* const context_;
  std::shared_ptr<Port> port_;
  Handlers handlers_;
  std::mutex mutex_;  // guards all below
  In request_;
  std::deque<Waiting> outbox_;  ///< the first is being written when writing_
  bool writing_ = false;
  std::optional<grpc::Status> end_;
  bool finished_ = false;
};

}  // namespace imgd
