#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agent/event_loop.h"
#include "agent/run_dir.h"
#include "common/error.h"
#include "common/files.h"

namespace imgd {

/// The agent's connection to a run's shim.
class ShimClient {
 public:
  struct Handlers {
    std::function<void(RunRecord)> on_record;  ///< the run's status changed
    std::function<void()> on_closed;  ///< the connection ended; the client may be destroyed in the handler
  };

  /// Errors: when nobody listens (the shim is dead, or not so far yet).
  static Result<std::unique_ptr<ShimClient>> Connect(EventLoop* loop, const RunDir& dir, Handlers handlers);
  ~ShimClient();

  /// "stop": a checkpoint first if so asked, SIGTERM, SIGKILL after `grace_ms`.
  void Stop(int64_t grace_ms, bool checkpoint_first);

 private:
  ShimClient(EventLoop* loop, UniqueFd fd, pid_t peer, Handlers handlers);
  void OnReadable();
  void TakeLine(std::string_view line);

  EventLoop* loop_;
  UniqueFd fd_;
  pid_t peer_;  ///< process that listens there
  Handlers handlers_;
  std::string in_;
};

}  // namespace imgd
