#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agent/session/session_inbox.h"
#include "agent/session/session_pump.h"
#include "common/error.h"
#include "imgd/v1/session.pb.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace imgd {

/// Where a session beside a rank is.
struct RankPlace {
  pid_t pid = 0;
  uint64_t start_time = 0;  ///< of the process: tells it from a later one of that number
  std::string name;         ///< "rank 0 of job 7"
  std::filesystem::path run_dir = {};
  std::string figures_dir;  ///< where the job writes what TensorBoard reads
};

/// What sessions need of their agent.
struct SessionHost {
  std::string node;
  std::filesystem::path shim_program;
  bool allowed = true;
  std::string tensorboard;  ///< program; empty: that of this name in PATH
  /// The way to imgd. Called from the session's thread; may take as long as imgd takes to answer.
  std::function<Result<std::shared_ptr<grpc::Channel>>()> channel;
  /// Called from the session's thread. Errors: kFailedPrecondition when the rank does not run here.
  std::function<Result<RankPlace>(const v1::RunId& run, uint32_t rank)> find_rank;
};

/// One session of a person on this node: fetches by SessionService.ServeSession what to do, does it and
/// carries its bytes until either side has gone. All on a thread of its own, and one more that reads.
class Session {
 public:
  /// `id`: as imgd said. `host` must outlive it. `refusal`: why it is not to be, for the person; empty where
  /// it is. `on_done` is called last of all, from the session's thread.
  Session(std::string id, const SessionHost* host, std::string refusal, std::function<void()> on_done);
  /// Ends it, and what it runs, without waiting for that.
  ~Session();

  /// Ends it: the person hears that the node broke it off.
  void Cancel();

 private:
  struct Call;

  void Run();
  void Serve(Call& call);
  /// What there is to be carried; says what it is in `opened`.
  Result<PumpEnds> Prepare(const v1::SessionTask& task, v1::SessionOpened& opened);
  Result<PumpEnds> PrepareProgram(const v1::SessionTask& task, v1::SessionOpened& opened);
  Result<PumpEnds> PrepareTensorBoard(const v1::SessionTask& task, v1::SessionOpened& opened);
  void Carry(Call& call, PumpEnds ends, const v1::SessionTask& task, v1::SessionOpened opened);

  const std::string id_;
  const SessionHost* const host_;
  const std::string refusal_;
  const std::function<void()> on_done_;
  SessionInbox inbox_;
  std::atomic<bool> abandoned_ = false;
  std::mutex mutex_;
  bool cancelled_ = false;  // guarded by mutex_
  Call* call_ = nullptr;    // guarded by mutex_
  std::thread thread_;
};

}  // namespace imgd
