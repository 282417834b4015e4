#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/event_loop.h"
#include "agent/pulse_watch.h"
#include "agent/relay.h"
#include "agent/run_dir.h"
#include "agent/shim_client.h"
#include "common/files.h"
#include "imgd/v1/agent.pb.h"

namespace imgd {

/// What a run is started from.
struct RunStart {
  RunSpec spec;
  std::string job_yaml;
  std::vector<std::string> resume_from;
  Generation last_generation;
  std::filesystem::path runs;          ///< folder that the run's folder is made in
  std::filesystem::path shim_program;  ///< imgagent-shim
};

/// This node's part of one run, from the held port to the last acknowledged log line. It is the shim that
/// runs the ranks; this is the agent's view of it, and can be made anew from the run's folder at any time.
/// Lives on the loop's thread.
class Run {
 public:
  /// `on_change` is called when what StatusMessage() says has changed.
  Run(EventLoop* loop, RunKey key, std::function<void(Run&)> on_change);
  ~Run();

  /// Binds a port of `address` for the gang's rendezvous and holds it.
  Status HoldPort(const std::string& address);
  /// Starts the run; what goes wrong is in the status: gone, with a start_error.
  void Start(const RunStart& start);
  /// Takes up a run whose folder another agent process left.
  void Attach(RunDir dir, RunSpec spec);
  /// Ends the ranks; see ShimClient::Stop. The port is let go if nothing runs.
  void Stop(int64_t grace_ms, bool checkpoint_first);
  /// Ends it without a rank having been started.
  void Refuse(std::string start_error);

  const RunKey& key() const { return key_; }
  /// What it was started from; empty before that.
  const RunSpec& spec() const { return spec_; }
  /// Ranks whose process runs now.
  uint32_t running_ranks() const;
  v1::RunPhase phase() const { return phase_; }
  v1::RunStatus StatusMessage() const;
  const std::string& port_address() const { return port_address_; }
  uint32_t port() const { return port_; }
  /// The job's own time between SIGTERM and SIGKILL, milliseconds.
  int64_t grace_ms() const { return spec_.grace_ms; }
  bool HoldsDevice(uint32_t device) const;
  /// Where the ranks are, looked up now; without ranks while none has said so.
  v1::RunPulse LookAtPulses(Instant now);
  /// Null while there is no folder.
  RunRelay* relay() { return relay_ ? &*relay_ : nullptr; }
  const std::optional<RunDir>& dir() const { return dir_; }
  /// What its shim said last; nothing before it said anything.
  const std::optional<RunRecord>& record() const { return record_; }
  /// Removes the run's folder. Only when it is gone.
  void RemoveDir();

 private:
  struct StopRequest {
    int64_t grace_ms;
    bool checkpoint_first;
  };

  bool DumpsCore(uint32_t local_rank) const;
  void ConnectToShim();
  void OnRecord(RunRecord record);
  /// Once, what the shim says of its version.
  void CheckShim();
  void EndWithoutShim();
  void KillLeftovers();
  /// Of a run that was told to stop, and whose ranks are still not all started.
  void EndHungStart();
  void SetGone(bool shim_said_so);
  /// Ranks that the machine took along when it went down have no exit: imgd takes that for a lost node.
  void LoseRanks();
  void SetPhase(v1::RunPhase phase);

  EventLoop* loop_;
  RunKey key_;
  std::function<void(Run&)> on_change_;
  v1::RunPhase phase_ = v1::RUN_PHASE_UNSPECIFIED;
  UniqueFd listener_;
  std::string port_address_;
  uint32_t port_ = 0;
  std::string start_error_;
  std::optional<RunDir> dir_;
  RunSpec spec_;
  std::optional<RunRecord> record_;
  bool shim_checked_ = false;
  std::optional<RunRelay> relay_;
  std::vector<PulseWatch> pulses_;  ///< by local rank
  std::unique_ptr<ShimClient> shim_;
  std::optional<StopRequest> stop_request_;
  EventLoop::TimerId timer_ = 0;
  EventLoop::TimerId start_timer_ = 0;
  std::vector<UniqueFd> leftovers_;  ///< pidfds of processes that outlived the shim
};

}  // namespace imgd
