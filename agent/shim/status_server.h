#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/event_loop.h"
#include "common/error.h"
#include "common/files.h"

namespace imgd {

/// The shim's end of `shim.sock`: tells each connected agent the run's latest status, one JSON line at each
/// change, and takes commands, one a line. A slow agent misses statuses in between, never the latest.
class StatusServer {
 public:
  using OnCommand = std::function<void(const std::string& command)>;

  /// Listens on kShimSocket in the working directory.
  static Result<std::unique_ptr<StatusServer>> Listen(EventLoop* loop, OnCommand on_command);
  ~StatusServer();

  /// Makes `json` (one line) the latest status and begins to send it.
  void Push(std::string json);
  /// True when some agent was sent the whole of the latest status.
  bool Delivered() const { return delivered_; }
  /// Sends what is left to agents that take it at once.
  void FlushOnce();

 private:
  struct Client {
    UniqueFd fd;
    std::string in;
    std::string out;      ///< rest of the line that is being sent
    bool behind = false;  ///< has not begun the latest status
  };

  StatusServer(EventLoop* loop, UniqueFd listener, OnCommand on_command);
  void Accept();
  void OnClient(int fd, uint32_t events);
  /// Both return false when the client is gone.
  bool ReadFrom(Client& client);
  bool WriteTo(Client& client);
  void Drop(int fd);

  EventLoop* loop_;
  UniqueFd listener_;
  OnCommand on_command_;
  std::string latest_;
  bool delivered_ = false;
  std::map<int, Client> clients_;
};

}  // namespace imgd
