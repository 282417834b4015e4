#pragma once

#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "server/core/reactor.h"

namespace imgd {

/// A cluster that lives by chance: agents that keep to the protocol, but whose machines, streams, ranks and
/// daemon fail at any time. It checks after each step what must always hold. The same seed gives the same
/// life.
class Sim {
 public:
  explicit Sim(uint64_t seed);

  /// One random thing happens, then the invariants are checked.
  void Step();
  /// Nothing fails any more; returns whether all jobs that fit come to an end.
  bool Heal();

  /// What is wrong, in the order found; empty when all is well.
  const std::vector<std::string>& faults() const { return faults_; }
  uint64_t stale_reports() const { return reactor_.stale_reports(); }
  /// Jobs that ended, of those submitted.
  std::string Summary() const;

 private:
  struct LiveRun {
    RunPhase phase = RunPhase::kPrepared;
    int stopped_exit = 0;  ///< of ranks that obey a stop
    uint32_t first_rank = 0;
    std::vector<uint32_t> devices;
    std::map<uint32_t, bool> alive;  ///< by rank
    std::vector<RankExit> exits;
    std::deque<std::string> events;  ///< durable reports of trainers: "started 3", "wrote 10", "finished"
  };
  struct Agent {
    std::string name;
    uint32_t devices = 1;
    uint64_t session = 0;
    std::map<RunKey, LiveRun> runs;
    std::deque<Action> inbox;   ///< lost with the stream
    std::deque<RunKey> outbox;  ///< runs whose state is to be told; lost with the stream
    std::map<JobId, Generation> newest;
  };

  uint64_t Random(uint64_t below) { return random_() % below; }
  bool Chance(int percent) { return Random(100) < static_cast<uint64_t>(percent); }
  Agent& AnyAgent() { return agents_[Random(agents_.size())]; }

  /// Steps the daemon and stores, which sometimes fails.
  template <typename Event>
  void Daemon(Event event);
  void Dispatch(const Actions& actions);
  void DropStream(Agent& agent);

  void Connect(Agent& agent);
  void Submit();
  void CancelOne();
  void Pass(Duration time);
  void RestartDaemon();
  void Reboot(Agent& agent);
  void RestartAgent(Agent& agent);
  void DeliverCommand(Agent& agent);
  void DeliverReport(Agent& agent);
  void DeliverEvent(Agent& agent);
  void RankDoes(Agent& agent);
  void BeatPulse(Agent& agent);

  void Obey(Agent& agent, const SendPrepare& command);
  void Obey(Agent& agent, const SendStart& command);
  void Obey(Agent& agent, const SendStop& command);
  void Obey(Agent& agent, const SendForget& command);
  template <typename Other>
  void Obey(Agent&, const Other&) {}
  void EndRank(Agent& agent, RunKey key, uint32_t rank, int exit_code, int signal);

  void Check();
  void CheckJob(const JobRecord& job);
  void Fault(std::string what) { faults_.push_back(std::move(what)); }

  std::mt19937_64 random_;
  CoreSettings settings_;
  Reactor reactor_;
  Now now_{Instant(std::chrono::hours(1)), WallTime{1'000'000'000'000'000}};
  std::vector<Agent> agents_;
  uint64_t next_session_ = 1;
  bool healed_ = false;
  struct Seen {
    JobState state;
    Generation generation;
  };
  std::map<JobId, Seen> seen_;
  std::vector<std::string> faults_;
};

}  // namespace imgd
