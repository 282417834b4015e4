#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/testing/node.h"
#include "imgd/v1/agent.pb.h"

namespace imgd {

/// imgd's side of the agents' stream, in this process: welcomes every agent, stores and acknowledges what it
/// relays, keeps what it says, and sends what the test wants. Thread-safe.
class FakeDaemon {
 public:
  /// What the daemon has seen.
  struct Seen {
    std::vector<v1::Hello> hellos;
    std::vector<v1::Heartbeat> heartbeats;
    std::vector<v1::RunStatus> statuses;
    std::vector<v1::MetricsPage> pages;
    std::vector<v1::ConnectRequest::MessageCase> order;  ///< what each message was
    Store store;
    bool connected = false;

    /// The run's latest status, from an answer or a Hello.
    v1::RunStatus Status(uint64_t job, uint64_t generation) const;
  };

  /// Listens on a free port of loopback.
  FakeDaemon();
  ~FakeDaemon();

  /// "127.0.0.1:port"; stays the same.
  std::string address() const;
  /// Ends every connection and listens no more, as when imgd is killed.
  void Shutdown();
  /// Listens again on the same port.
  void Restart();
  /// Refuses agents from now on with this text; empty to take them again.
  void Refuse(const std::string& why);
  /// Welcomes agents from now on as the daemon of that cluster ("test" before).
  void SetCluster(const std::string& cluster);

  /// Sends to the agent that is connected now.
  void Send(const v1::ConnectResponse& response);
  /// Waits until `done` holds; false if that takes longer than any test should.
  bool Until(const std::function<bool(Seen&)>& done);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace imgd
