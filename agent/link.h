#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "agent/node_key.h"
#include "common/clock.h"
#include "common/error.h"
#include "imgd/v1/agent.pb.h"

namespace imgd {

struct LinkOptions {
  std::string server;           ///< host:port
  NodeKey* node_key = nullptr;  ///< what to connect by TLS with; null: plain text. Must outlive the link
  Duration connect_timeout = std::chrono::seconds(5);
  Duration first_backoff = std::chrono::milliseconds(100);
  Duration max_backoff = std::chrono::seconds(3);
};

/// The stream to the daemon: connects, and connects again after each end, waiting longer and longer, with
/// jitter. Each connection has a number; what belongs to an older one is dropped.
/// By TLS it also has the node's certificate renewed in time, without touching the connection.
/// Has two threads of its own, and one more by TLS; every public function belongs to the thread that made it.
class Link {
 public:
  struct Opened {
    uint64_t connection;
  };
  struct Message {
    uint64_t connection;
    v1::ConnectResponse response;
  };
  struct Closed {
    uint64_t connection;  ///< 0: it did not come to one
    Error error;
  };
  using Event = std::variant<Opened, Message, Closed>;

  explicit Link(LinkOptions options);
  /// Ends the connection and the threads.
  ~Link();

  /// Readable when Take() has something.
  int event_fd() const;
  /// What happened since the last call, in order. The next message is read once this was called: a slow
  /// caller holds the daemon up, it does not fill the memory.
  std::vector<Event> Take();

  /// Sends, in order; a heartbeat goes before all that still waits, and takes the place of one that does.
  /// Nothing happens if that connection has ended.
  void Send(uint64_t connection, v1::ConnectRequest request);
  /// Ends the connection; a new one follows.
  void Reset(uint64_t connection);
  /// The daemon took the agent in: the next attempt after this connection comes quickly.
  void Confirm(uint64_t connection);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace imgd
