#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "server/core/reactor.h"

namespace imgd::sim {

class World;

/// The engine around the core, in small: it takes what came in since it last looked, steps the reactor,
/// stores everything in one commit, and only then answers and sends. It crashes, sleeps, and fails to store.
class Daemon {
 public:
  using Positions = std::map<std::pair<RunKey, uint32_t>, uint64_t>;
  explicit Daemon(World& world);

  /// Called with true when everything that the call changed is durable, with false when nothing is.
  using Answer = std::function<void(bool)>;
  void Call(std::function<void(Actions&)> call, Answer answer = {});
  void Submit(const Submission& submission);
  void SubmitSweep(const SweepSubmission& submission);
  void Cancel(JobId job, bool checkpoint_first);
  // What people ask for; refused where the core does.
  void Pause(JobId job);
  /// One that can't be resumed, since its time is over, is cancelled.
  void Resume(JobId job);
  void Move(JobId job);
  void SetPriority(JobId job, int priority);
  void SetTimeLimit(JobId job, TimeLimitChange change);
  /// The world's settings, as they are now.
  void TakeUpSettings();
  void SetAside(const NodeId& node, bool drain);
  void Forget(const NodeId& node);
  void Return(const NodeId& node, bool drained);
  void OnHello(uint64_t session, NodeHello hello);
  void OnGone(const NodeId& node, uint64_t session);
  /// A call that only counts while the node's stream is this one.
  void OnMessage(const NodeId& node, uint64_t session, std::function<void(Actions&)> call,
                 Answer answer = {});
  /// The number of the event among the rank's; `take` steps the reactor.
  void OnEvent(const NodeId& node, uint64_t session, RunKey run, uint32_t rank, uint64_t number,
               std::function<void(Actions&)> take);

  void Crash(Duration away);
  void Sleep(Duration time);
  void FillDisk(Duration time);
  void EmptyDisk();

  bool up() const { return up_; }
  /// When something last kept it from doing its work in time.
  Instant disturbed() const { return disturbed_; }
  const Reactor& reactor() const { return reactor_; }
  Reactor& reactor() { return reactor_; }
  const JobRecord* Stored(JobId job) const;
  const std::map<JobId, JobRecord>& stored() const { return jobs_; }

 private:
  struct Input {
    std::function<void(Actions&)> call;
    Answer answer;
  };
  void Wake();
  void TickAfter(Duration time);
  void Tick();
  void Work(bool tick);
  void Beat();
  bool CommitFails(bool touched);
  void Undo();
  void ClearNode(const NodeId& node, std::function<Status(Actions&)> ask);
  void Store(const Actions& actions);
  void Address(const Actions& actions, std::vector<uint64_t>& sessions) const;
  void Send(const Actions& actions, const std::vector<uint64_t>& sessions);
  void Restart();
  void LeaveOutBroken(Submission& submission);
  bool IsRefused(const Submission& submission, const std::vector<Submission>& members = {});

  World* world_;
  Reactor reactor_;
  bool up_ = true;
  bool awake_ = false;  ///< a batch is planned
  uint64_t life_ = 0;   ///< of the process: what was planned by an earlier one does not happen
  Instant beaten_{};    ///< when the heartbeats came last
  Instant asleep_until_{};
  Instant disk_full_until_{};
  Instant disturbed_{};
  std::vector<Input> inputs_;
  Positions positions_;  ///< of each rank's events: the last that was taken
  std::set<Positions::key_type> touched_positions_;
  // What is on disk.
  std::map<JobId, JobRecord> jobs_;
  std::map<NodeId, NodeRecord> nodes_;
  std::map<JobId, SweepRecord> sweeps_;
  std::map<std::string, Usage> usage_;
  std::map<std::string, Account> accounts_;
  Positions stored_positions_;
};

}  // namespace imgd::sim
