#pragma once

#include <grpcpp/support/server_callback.h>

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "server/engine/hub.h"
#include "server/engine/read_pool.h"

namespace imgd {

/// Those who wait on a hub look again after this time even when it is silent.
constexpr auto kLookAgain = std::chrono::seconds(30);

/// A server stream that is fed by reading the databases: read some, write them one by one, read again; with
/// nothing left, wait for the hub. It holds no thread while it waits or writes, and no more than one
/// reading's messages, however slow its reader is. Deletes itself at the end.
template <typename Response>
class PumpedStream : public grpc::ServerWriteReactor<Response> {
 public:
  PumpedStream(ReadPool* pool, Hub* hub, JobId job) : pool_(pool), hub_(hub), job_(job) {}

  void OnWriteDone(bool ok) override {
    bool again = false;
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = cancelled_ || !ok;
      again = !cancelled_ && ++index_ < batch_.size();
    }
    // Only this reaction touches the batch until the last write is done.
    if (again) {
      this->StartWrite(&batch_[index_]);
    } else {
      GoOn();
    }
  }

  void OnCancel() override {
    bool finish = false;
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
      // When the hub has called already, or something is read or written, that one ends the stream.
      finish = token_ && hub_->Cancel(*token_);
      if (finish) token_.reset();
    }
    if (finish) this->Finish(Cancelled());
  }

  void OnDone() override { delete this; }

 protected:
  /// What to do after what Read() gave is written.
  struct Step {
    enum What { kMore, kWait, kEnd } what = kEnd;
    grpc::Status status;  ///< of kEnd
    uint64_t seen = 0;    ///< of kWait: until the hub has a newer version
    Instant deadline{};   ///< of kWait: or until then
  };

  /// Reads the next messages. On a thread of the pool; one call at a time.
  virtual Step Read(Reader& reader, std::vector<Response>& out) = 0;

  /// To be called once, when the object is complete.
  void Pump() {
    pool_->Post([this](Reader& reader) { ReadSome(reader); });
  }

  JobId job() const { return job_; }
  /// The hub's newest version. Not every one has something to read: a commit that failed takes numbers along.
  uint64_t Published() const { return hub_->Version(job_); }

  /// Whether nobody reads on, for a Read() that takes long.
  bool IsCancelled() {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }

 private:
  static grpc::Status Cancelled() { return {grpc::StatusCode::CANCELLED, "the caller went away"}; }

  void ReadSome(Reader& reader) {
    std::vector<Response> batch;
    Step step = Read(reader, batch);
    Response* first = nullptr;
    {
      const std::lock_guard lock(mutex_);
      step_ = std::move(step);
      batch_ = std::move(batch);
      index_ = 0;
      if (!batch_.empty() && !cancelled_) first = &batch_.front();
    }
    if (first != nullptr) {
      this->StartWrite(first);
    } else {
      GoOn();
    }
  }

  /// Nothing is being read or written. After it `this` may be gone.
  void GoOn() {
    std::optional<grpc::Status> end;
    {
      const std::lock_guard lock(mutex_);
      if (cancelled_) {
        end = Cancelled();
      } else if (step_.what == Step::kEnd) {
        end = step_.status;
      } else if (step_.what == Step::kWait) {
        token_ = hub_->Wait(job_, step_.seen, step_.deadline, [this] { Woken(); });
        if (token_) return;
        if (hub_->closed()) end = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the daemon is ending");
      }
    }
    if (end) {
      this->Finish(*end);
    } else {
      Pump();
    }
  }

  void Woken() {
    {
      const std::lock_guard lock(mutex_);
      token_.reset();
      step_.what = hub_->closed() ? Step::kWait : Step::kMore;
    }
    GoOn();
  }

  ReadPool* pool_;
  Hub* hub_;
  JobId job_;
  std::mutex mutex_;  // guards all below
  Step step_;
  std::vector<Response> batch_;
  size_t index_ = 0;
  std::optional<Hub::Token> token_;
  bool cancelled_ = false;
};

}  // namespace imgd
