#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/core/reactor.h"
#include "tests/sim/daemon.h"
#include "tests/sim/shape.h"

namespace imgd::sim {

/// What a trainer reports; kept on the node until it is acknowledged.
struct TrainerEvent {
  enum class Kind : uint8_t { kStarted, kProgress, kEpoch, kCheckpoint, kFinished, kFailed };
  Kind kind = Kind::kStarted;
  Duration left{};  ///< of kProgress
  EpochFigures figures = {};
  Checkpoint checkpoint = {};
  RankFailure failure = {};
};

/// A node with its agent: it obeys the daemon's commands, keeps what its ranks report, and tells it all again
/// when it comes back. Ranks live on when only the agent ends.
class Agent {
 public:
  Agent(World& world, std::string name, std::string agent_id, NodeTruth truth);

  const NodeId& id() const { return id_; }
  const std::string& storage() const { return truth_.storage; }
  uint64_t session() const { return session_; }
  bool on() const { return on_; }
  /// Every rank that starts on it crashes.
  bool sick() const;
  bool gone_for_ever() const { return gone_for_ever_; }
  size_t runs() const { return runs_.size(); }
  size_t devices() const { return devices_.size(); }

  void Connect();
  void OnStreamLost(uint64_t session);
  void OnWelcome(const Daemon::Positions& stored);
  void OnAcknowledged(RunKey run, uint32_t rank, uint64_t number);
  void Obey(const Action& action);

  // What its ranks do.
  bool Lives(RunKey run, uint32_t rank) const;
  bool Stopping(RunKey run) const;
  void Report(RunKey run, uint32_t rank, TrainerEvent event);
  void EndRank(RunKey run, uint32_t rank, int exit_code, int signal, bool told = false);
  void SendPulses(RunKey run, std::vector<RankPulse> pulses);

  // What goes wrong.
  void RestartAgent(Duration away);
  void Reboot(Duration away, bool power_lost);
  void DieForEver();
  void CutOff(Duration time);
  /// Ranks of another cluster's run hold the last device for so long.
  void RunForeign(Duration time);
  /// Its ranks crash for so long.
  void FallSick(Duration time);
  /// Its disk is full for so long, which its health checks find.
  void FillDisk(Duration time);
  /// Its machine is taken back in so long; then it is gone for a while, or stays after all.
  void TakeBack(Duration in, Duration away, bool stays);
  void Mend();
  /// Closes the stream and stays away.
  void Leave();

 private:
  struct RankLife {
    bool alive = false;
    bool stubborn = false;  ///< only SIGKILL ends it
    std::deque<TrainerEvent> events;
    uint64_t acknowledged = 0;
    uint64_t sent = 0;
  };
  struct LiveRun {
    RunPhase phase = RunPhase::kPrepared;
    bool forgotten = false;
    imgd::JobKind kind = imgd::JobKind::kTraining;
    std::vector<uint32_t> devices;
    std::map<uint32_t, RankLife> ranks;
    std::vector<RankExit> exits;
    std::string start_error;
    uint32_t port = 0;

    bool AnyAlive() const;
  };
  void Handle(const SendPrepare& command);
  void Handle(const SendStart& command);
  void Handle(const SendStop& command);
  void Handle(const SendForget& command);
  template <typename Other>
  void Handle(const Other&) {}
  bool IsOld(RunKey run);
  void CheckDevices(const SendStart& command) const;
  void Terminate(RunKey run, Duration grace);
  void StopAfterCheckpoint(RunKey run, Duration grace);
  void SendStatus(RunKey run);
  void SendEvents(RunKey run, uint32_t rank);
  void SendEvent(RunKey run, uint32_t rank, uint64_t number, const TrainerEvent& event);
  void DropForgotten(RunKey run);
  RunReport ReportOf(RunKey key, const LiveRun& run) const;
  NodeHello MakeHello() const;
  Health HealthNow() const;
  void SendHealth();
  void ComeBack(Duration after);
  void LoseRanks();

  World* world_;
  NodeId id_;
  std::string agent_id_;
  NodeTruth truth_;
  std::vector<Device> devices_;
  bool on_ = true;       ///< the machine
  bool running_ = true;  ///< the agent
  bool gone_for_ever_ = false;
  uint64_t life_ = 0;
  uint64_t session_ = 0;
  bool welcome_ = false;
  Instant cut_off_until_{};
  std::map<RunKey, LiveRun> runs_;
  std::map<JobId, Generation> newest_;
  Instant sick_until_{};
  bool disk_full_ = false;
  std::optional<Notice> notice_;
  std::optional<uint32_t> foreign_;  ///< the device that another cluster's run holds
  uint32_t next_port_ = 20'000;
};

}  // namespace imgd::sim
