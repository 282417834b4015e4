#include "tests/sim/network.h"

#include <algorithm>

#include "tests/sim/world.h"

namespace imgd::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

uint64_t Network::Open(Agent& agent) {
  streams_[next_].agent = &agent;
  return next_++;
}

Duration Network::Delay() {
  return world_->dice.Chance(0.02) ? world_->dice.Between(milliseconds(50), seconds(3))
                                   : world_->dice.Between(milliseconds(0), milliseconds(8));
}

Duration Network::Arrival(const Stream& stream, Instant& last) {
  const Instant now = world_->time.now().steady;
  last = std::max({now + Delay(), last, stream.stalled_until});
  return last - now;
}

void Network::ToDaemon(uint64_t session, std::function<void()> message) {
  const auto stream = streams_.find(session);
  if (stream == streams_.end() || !stream->second.agent_open) return;
  stream->second.up.push_back(std::move(message));
  world_->time.After(Arrival(stream->second, stream->second.last_up), [this, session] { PumpUp(session); });
}

void Network::ToAgent(uint64_t session, std::function<void(Agent&)> message) {
  const auto stream = streams_.find(session);
  if (stream == streams_.end() || !stream->second.daemon_open) return;
  stream->second.down.push_back(std::move(message));
  world_->time.After(Arrival(stream->second, stream->second.last_down),
                     [this, session] { PumpDown(session); });
}

void Network::PumpUp(uint64_t session) {
  const auto found = streams_.find(session);
  if (found == streams_.end() || found->second.up.empty()) return;
  Stream& stream = found->second;
  const Instant now = world_->time.now().steady;
  if (stream.stalled_until > now) {
    world_->time.After(stream.stalled_until - now, [this, session] { PumpUp(session); });
    return;
  }
  auto message = std::move(stream.up.front());
  stream.up.pop_front();
  if (stream.daemon_open && world_->daemon.up()) message();
}

void Network::PumpDown(uint64_t session) {
  const auto found = streams_.find(session);
  if (found == streams_.end() || found->second.down.empty()) return;
  Stream& stream = found->second;
  const Instant now = world_->time.now().steady;
  if (stream.stalled_until > now) {
    world_->time.After(stream.stalled_until - now, [this, session] { PumpDown(session); });
    return;
  }
  auto message = std::move(stream.down.front());
  stream.down.pop_front();
  if (stream.agent_open) message(*stream.agent);
}

void Network::Stall(uint64_t session, Duration time) {
  const auto stream = streams_.find(session);
  if (stream != streams_.end()) stream->second.stalled_until = world_->time.now().steady + time;
}

void Network::EndStalls() {
  const Instant now = world_->time.now().steady;
  for (const uint64_t session : Sessions()) {
    const auto found = streams_.find(session);
    if (found == streams_.end() || found->second.stalled_until <= now) continue;
    Stream& stream = found->second;
    // What comes later must not wait behind what was held back for longer.
    stream.stalled_until = stream.last_up = stream.last_down = now;
    for (size_t left = stream.up.size(); left > 0; --left) PumpUp(session);
    for (size_t left = stream.down.size(); left > 0; --left) PumpDown(session);
  }
}

void Network::TellAgent(uint64_t session, Duration after) {
  world_->time.After(after, [this, session] {
    const auto found = streams_.find(session);
    if (found == streams_.end() || !found->second.agent_open) return;
    found->second.agent_open = false;
    Agent* agent = found->second.agent;
    DropClosed(session);
    agent->OnStreamLost(session);
  });
}

void Network::TellDaemon(uint64_t session, Duration after) {
  world_->time.After(after, [this, session] {
    const auto found = streams_.find(session);
    if (found == streams_.end()) return;
    const NodeId node = found->second.agent->id();
    found->second.daemon_open = false;
    DropClosed(session);
    if (world_->daemon.up()) world_->daemon.OnGone(node, session);
  });
}

void Network::DropClosed(uint64_t session) {
  const auto stream = streams_.find(session);
  if (!stream->second.agent_open && !stream->second.daemon_open) streams_.erase(stream);
}

void Network::Break(uint64_t session) {
  const auto found = streams_.find(session);
  if (found == streams_.end()) return;
  found->second.up.clear();
  found->second.down.clear();
  TellAgent(session, world_->dice.Between(milliseconds(0), seconds(10)));
  TellDaemon(session, world_->dice.Between(milliseconds(0), seconds(10)));
}

void Network::CloseByAgent(uint64_t session, bool told) {
  const auto found = streams_.find(session);
  if (found == streams_.end()) return;
  found->second.agent_open = false;
  found->second.down.clear();
  // What a machine that lost its power sent last may be under way; nothing says that it is gone.
  if (told) TellDaemon(session, world_->dice.Between(milliseconds(0), seconds(12)));
}

void Network::CloseByDaemon(uint64_t session) {
  closed_by_daemon_.insert(session);
  const auto found = streams_.find(session);
  if (found == streams_.end() || !found->second.daemon_open) return;
  found->second.daemon_open = false;
  found->second.up.clear();
  const Duration stalled = found->second.stalled_until - world_->time.now().steady;
  TellAgent(session, std::max(stalled, Duration::zero()) + Delay());
}

void Network::CloseAllByDaemon() {
  for (const uint64_t session : Sessions()) CloseByDaemon(session);
}

std::vector<uint64_t> Network::Sessions() const {
  std::vector<uint64_t> sessions;
  for (const auto& [session, stream] : streams_) sessions.push_back(session);
  std::sort(sessions.begin(), sessions.end());
  return sessions;
}

Agent* Network::Passing(uint64_t session) const {
  const auto found = streams_.find(session);
  if (found == streams_.end()) return nullptr;
  const Stream& stream = found->second;
  if (!stream.agent_open || !stream.daemon_open) return nullptr;
  return stream.stalled_until > world_->time.now().steady ? nullptr : stream.agent;
}

}  // namespace imgd::sim
