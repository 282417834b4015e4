#pragma once

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "agent/event_loop.h"
#include "agent/session/session.h"
#include "agent/supervisor.h"
#include "imgd/v1/agent.pb.h"

namespace imgd {

class NodeKey;

struct SessionsOptions {
  std::string server;           ///< host:port
  NodeKey* node_key = nullptr;  ///< as LinkOptions has it
  std::string node;
  std::filesystem::path shim_program;
  bool allowed = true;
  std::string tensorboard;
  size_t most = 512;  ///< at once, connections of forwards too
};

/// All sessions of people on this node. Lives on the loop's thread; each session has threads of its own,
/// which ask here where a rank is.
class Sessions {
 public:
  /// Loop and supervisor must outlive it.
  static Result<std::unique_ptr<Sessions>> Create(EventLoop* loop, SessionsOptions options,
                                                  Supervisor* supervisor);
  /// Ends all, and what they run.
  ~Sessions();

  /// imgd says that somebody wants one.
  void Open(const v1::OpenSession& order);
  /// The connection to imgd is gone: so are the people.
  void CancelAll();

 private:
  struct Question {
    v1::RunId run;
    uint32_t rank = 0;
    std::promise<Result<RankPlace>> answer;
  };

  Sessions(EventLoop* loop, SessionsOptions options, Supervisor* supervisor);
  void OnEvent();
  Result<RankPlace> FindRank(const v1::RunId& run, uint32_t rank) const;
  // From any thread:
  Result<RankPlace> Ask(const v1::RunId& run, uint32_t rank);
  Result<std::shared_ptr<grpc::Channel>> Channel();
  void NoteDone(uint64_t number);
  void Wake();

  EventLoop* loop_;
  const SessionsOptions options_;
  Supervisor* supervisor_;
  SessionHost host_;
  UniqueFd wake_;
  uint64_t last_number_ = 0;
  bool full_ = false;  ///< which was said
  std::mutex mutex_;
  bool closing_ = false;                              // guarded by mutex_
  std::vector<std::unique_ptr<Question>> questions_;  // guarded by mutex_
  std::vector<uint64_t> done_;                        // guarded by mutex_
  std::weak_ptr<grpc::Channel> channel_;              // guarded by mutex_
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;
};

}  // namespace imgd
