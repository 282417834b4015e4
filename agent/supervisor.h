#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/event_loop.h"
#include "agent/generations.h"
#include "agent/projects.h"
#include "agent/run.h"
#include "imgd/v1/agent.pb.h"

namespace imgd {

struct SupervisorOptions {
  std::filesystem::path state_dir;
  std::filesystem::path shim_program;
  std::filesystem::path trainer;
  std::filesystem::path converter;  ///< imgcli; empty: found when it is needed
  std::vector<v1::Device> devices;
  uint64_t run_log_limit_bytes = 256ULL << 20;
  bool use_cgroup = true;
  Projects projects;  ///< what their jobs may have here
};

/// All runs of this node: takes the daemon's commands, answers with what the runs do, and relays what their
/// ranks say. Knows nothing of how messages travel. Lives on the loop's thread.
class Supervisor {
 public:
  using Send = std::function<void(v1::ConnectRequest)>;

  /// Takes up every run that an earlier agent left in the state folder. `send` is called only between
  /// OnConnected and OnDisconnected.
  static Result<std::unique_ptr<Supervisor>> Create(EventLoop* loop, SupervisorOptions options, Send send);
  ~Supervisor();

  /// The node's own address, which rendezvous ports are held on.
  void SetAddress(std::string address) { address_ = std::move(address); }
  /// For Hello: the state of every run that is not forgotten, of whatever cluster: which one the daemon is of
  /// is not known before its answer.
  std::vector<v1::RunStatus> Statuses() const;
  /// Runs, of whatever cluster, that were started and are not gone. Good until the loop goes on.
  std::vector<const Run*> LiveRuns() const;
  /// The run as the daemon that is there now names it; null where there is none. Good until the loop goes on.
  const Run* RunOf(const v1::RunId& run) const;
  /// Clusters with a run here that is not gone.
  std::set<std::string> LiveClusters() const;

  /// A connection stands, and Hello was sent on it: changes of state go out from now on.
  void OnConnected() { connected_ = true; }
  /// The daemon's first answer: events and lines of its own cluster's runs go out from now on. Other
  /// clusters' runs go on untouched, with all that they say kept, until the agent is back with their daemon.
  void OnWelcome(const v1::Welcome& welcome);
  void OnDisconnected();
  /// A command or an acknowledgement.
  void Handle(const v1::ConnectResponse& response);
  /// Ends every run of the cluster, with its own grace time, as if its daemon had asked for it.
  void StopAll(const std::string& cluster);

 private:
  Supervisor(EventLoop* loop, SupervisorOptions options, Generations generations, Send send);

  Status FindRuns();
  void Prepare(const v1::PrepareRun& command);
  void Start(const v1::StartRun& command);
  void Stop(const v1::StopRun& command);
  void Profile(const v1::ProfileRun& command);
  void Forget(const v1::ForgetRun& command);

  /// Why the command can't be followed; nothing if it can.
  std::string WhyNot(const v1::StartRun& command) const;
  /// Errors: what ProgramOf() and CheckClaims() say.
  Result<RunStart> MakeStart(const v1::StartRun& command) const;
  std::string VisibleDevices(const std::vector<uint32_t>& indices) const;
  const v1::Device* FindDevice(uint32_t index) const;

  /// The run as the daemon that is there now names it.
  RunKey KeyOf(const v1::RunId& run) const;
  Run* Find(const RunKey& key);
  Run& Add(const RunKey& key);
  void EndOlderPrepared(const RunKey& key);
  bool MayStart(const RunKey& key) const;
  std::string TooOld(const RunKey& key) const;
  void Remember(const RunKey& key, Generation oldest);
  void SayWhatIsOthers();
  void OnChange(Run& run);
  void SendStatus(v1::RunStatus status);
  void SendGone(const RunKey& key, std::string error);
  void WatchFolder(const Run& run);
  void OnFilesChanged();
  void PumpSoon(Duration delay);
  void Pump();
  void SendPulse(Run& run);
  void SendPulses();
  void RemoveForgotten();

  EventLoop* loop_;
  SupervisorOptions options_;
  Generations generations_;
  Send send_;
  std::string address_;
  std::string cluster_;            ///< of the daemon that welcomed last; empty before the first
  std::set<std::string> told_of_;  ///< other clusters whose runs were spoken of
  bool connected_ = false;
  bool welcomed_ = false;
  std::map<RunKey, std::unique_ptr<Run>> runs_;
  std::set<RunKey> forgotten_;  ///< runs that go as soon as all is acknowledged
  UniqueFd inotify_;
  EventLoop::TimerId pump_timer_ = 0;
  Instant pump_at_{};
  EventLoop::TimerId pulse_timer_ = 0;
};

}  // namespace imgd
