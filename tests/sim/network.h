#pragma once

#include <deque>
#include <functional>
#include <set>
#include <unordered_map>
#include <vector>

#include "server/core/types.h"

namespace imgd::sim {

class World;
class Agent;

/// The streams between agents and the daemon. Messages of one direction arrive in order, each after a delay
/// of its own; a stream that stalls holds them back, one that breaks loses them, and its ends learn of it at
/// different times, or not at all.
class Network {
 public:
  explicit Network(World& world) : world_(&world) {}

  /// Opens a stream; its number is the session.
  uint64_t Open(Agent& agent);
  void ToDaemon(uint64_t session, std::function<void()> message);
  void ToAgent(uint64_t session, std::function<void(Agent&)> message);

  /// Nothing passes for so long.
  void Stall(uint64_t session, Duration time);
  /// What was under way is lost; both ends hear of it some time later.
  void Break(uint64_t session);
  /// The agent is gone; the daemon only hears of it where `told`.
  void CloseByAgent(uint64_t session, bool told);
  void CloseByDaemon(uint64_t session);
  void CloseAllByDaemon();

  /// The daemon ended the stream of that session itself, so that it knows.
  bool ClosedByDaemon(uint64_t session) const { return closed_by_daemon_.contains(session); }
  /// The agent of an open stream through which messages pass now; null where there is none.
  Agent* Passing(uint64_t session) const;
  void EndStalls();

 private:
  struct Stream {
    Agent* agent = nullptr;
    bool agent_open = true;
    bool daemon_open = true;
    Instant stalled_until{};
    Instant last_up{};
    Instant last_down{};
    std::deque<std::function<void()>> up;
    std::deque<std::function<void(Agent&)>> down;
  };
  void PumpUp(uint64_t session);
  void PumpDown(uint64_t session);
  void TellAgent(uint64_t session, Duration after);
  void TellDaemon(uint64_t session, Duration after);
  Duration Delay();
  /// Time from now until the message of a direction arrives, after those before it.
  Duration Arrival(const Stream& stream, Instant& last);
  void DropClosed(uint64_t session);
  /// Of all streams, in the order in which they were opened, by which a life replays.
  std::vector<uint64_t> Sessions() const;

  World* world_;
  /// By session; each heartbeat looks for one.
  std::unordered_map<uint64_t, Stream> streams_;
  std::set<uint64_t> closed_by_daemon_;
  uint64_t next_ = 1;
};

}  // namespace imgd::sim
