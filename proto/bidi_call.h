#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <mutex>
#include <utility>

namespace imgd {

/// A call with a stream each way, whose Write() and Read() wait. gRPC's own threads look after its connection
/// also while neither is called, as where somebody has stopped reading: a call of gRPC's synchronous kind
/// answers no ping then, and is taken for dead. One thread may write while another reads.
template <typename Request, typename Response>
class BidiCall final : private grpc::ClientBidiReactor<Request, Response> {
 public:
  /// `begin` gets the context, which may be given metadata, and the reactor, and makes the call with both.
  template <typename BeginCall>
  explicit BidiCall(BeginCall begin) {
    begin(&context_, static_cast<grpc::ClientBidiReactor<Request, Response>*>(this));
    this->AddHold();  // for Write() and Read(), which are no reactions
    this->StartCall();
  }
  BidiCall(const BidiCall&) = delete;
  BidiCall& operator=(const BidiCall&) = delete;
  /// Breaks it off.
  ~BidiCall() override {
    Cancel();
    (void)Finish();
  }

  /// Waits until there is room; false when the call has ended.
  bool Write(const Request& request) {
    if (!Begin(write_)) return false;
    this->StartWrite(&request);
    return Await(write_);
  }
  /// False after the last answer.
  bool Read(Response& response) {
    if (!Begin(read_)) return false;
    this->StartRead(&response);
    return Await(read_);
  }
  /// For any thread.
  void Cancel() { context_.TryCancel(); }
  /// How it ended; call it when Read() was false, and nobody writes.
  grpc::Status Finish() {
    std::unique_lock lock(mutex_);
    if (!std::exchange(finishing_, true)) {
      lock.unlock();
      this->RemoveHold();
      lock.lock();
    }
    changed_.wait(lock, [this] { return done_; });
    return status_;
  }

 private:
  struct Step {
    bool done = false;
    bool good = false;
  };

  bool Begin(Step& step) {
    const std::lock_guard lock(mutex_);
    step = {};
    return !finishing_;
  }
  bool Await(const Step& step) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&step] { return step.done; });
    return step.good;
  }
  void Note(Step& step, bool good) {
    const std::lock_guard lock(mutex_);
    step = {.done = true, .good = good};
    changed_.notify_all();
  }

  void OnWriteDone(bool good) override { Note(write_, good); }
  void OnReadDone(bool good) override { Note(read_, good); }
  void OnDone(const grpc::Status& status) override {
    const std::lock_guard lock(mutex_);
    status_ = status;
    done_ = true;
    changed_.notify_all();
  }

  grpc::ClientContext context_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  Step write_;
  Step read_;
  bool finishing_ = false;
  bool done_ = false;
  grpc::Status status_;
};

}  // namespace imgd
