#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "server/core/reactor.h"

namespace imgd {

/// A reactor with a clock that only the test moves, and nodes that say what the test makes them say, so that
/// a scenario is a few lines:
///
///   TestCluster cluster;
///   cluster.Join("a", 1).Join("b", 1);
///   const JobId job = cluster.Submit("rn50", {.nodes = 2});
///   cluster.BringUp(job);
///   cluster.Ends("b", job, {Killed(1, 9)});
class TestCluster {
 public:
  struct Want {
    uint32_t nodes = 1;
    uint32_t max_nodes = 0;
    uint32_t ranks = 1;  ///< on each node
    int priority = 0;
    uint32_t max_restarts = 10;
    int64_t time_limit_ms = 0;
    bool preemptible = true;
    std::string owner = "ada";
    std::string project = {};
    std::vector<Dependency> after = {};
    WallTime not_before = {};
    JobKind kind = JobKind::kTraining;
    bool per_node = false;
  };

  explicit TestCluster(CoreSettings settings = {});

  /// What nodes that join from now on see: those that name the same one share all folders.
  std::string filesystem = "fs";
  /// The processes of agents that join from now on.
  std::string incarnation;
  /// The labels of nodes that join from now on.
  Labels labels;
  /// What nodes that join from now on cost an hour.
  double price_per_hour = 0;

  /// The node says Hello with so many devices, and with the runs given. Errors fail the test.
  TestCluster& Join(const std::string& node, uint32_t devices, std::vector<RunReport> runs = {});
  Status TryJoin(const std::string& node, uint32_t devices, const std::string& agent_id,
                 std::vector<RunReport> runs = {});
  void Leave(const std::string& node);
  /// No heartbeats from it any more; its stream stays open.
  void Silence(const std::string& node) { silent_.insert(node); }

  JobId Submit(const std::string& name) { return Submit(name, Want{}); }
  JobId Submit(const std::string& name, Want want);
  /// Jobs NAME[1] and so on; returns the first one's number.
  JobId SubmitSweep(const std::string& name, uint32_t members, uint32_t max_running,
                    std::optional<Halving> halving = std::nullopt);
  /// A dependency on the job.
  Dependency After(JobId job, AfterEnd when = AfterEnd::kOk) const;
  Status Cancel(JobId job, bool checkpoint_first = false);

  // What somebody (ada) asks of a job or a node.
  Status Pause(JobId job);
  Status Resume(JobId job);
  Status Move(JobId job);
  Status SetPriority(JobId job, int priority);
  Status SetTimeLimit(JobId job, TimeLimitChange change);
  Status SetAside(const std::string& node, bool drain, const std::string& reason = "");
  Status Return(const std::string& node, bool drained);
  Status Forget(const std::string& node);

  /// A run that somebody started by hand, and a sign of life of it.
  JobId StartedByHand(const std::string& name, std::vector<std::string> hosts);
  void HeardByHand(JobId job);

  void Prepared(const std::string& node, JobId job, const std::string& error = "");
  void Says(const std::string& node, const RunReport& report);
  /// The node's ranks run.
  void Runs(const std::string& node, JobId job);
  /// The node's ranks are gone, with these exits.
  void Ends(const std::string& node, JobId job, std::vector<RankExit> exits);
  /// Ranks have ended, but the node still has processes of the run.
  void Exits(const std::string& node, JobId job, std::vector<RankExit> exits);
  /// Where the node's ranks are; the gang is judged by it when time passes.
  void Pulses(const std::string& node, JobId job, std::vector<RankPulse> ranks);
  void Started(JobId job, uint32_t rank);
  void Epoch(JobId job, uint32_t epoch, double top1);
  void Finished(JobId job, uint32_t rank = 0);
  void Failed(JobId job, RankFailure failure);
  void Wrote(JobId job, uint64_t step, Generation generation);
  /// From STARTING to RUNNING, as well-behaved agents and trainers would.
  void BringUp(JobId job);
  /// Every rank exits with 0 and rank 0 says that it finished.
  void Complete(JobId job);
  /// The commit fails: the batch is undone, and every node has to say Hello again.
  void FailCommit(const std::function<void(Actions&)>& batch);

  /// Time passes in steps of a second, with heartbeats of those who are connected and not silenced.
  void Pass(Duration time);
  /// The daemon restarts: only what is stored is known, and every node has to say Hello.
  void Restart();
  /// The same with this moment's state as a backup: starts from now on have no lower number.
  void RestoreWith(Generation first) {
    settings_.first_generation = first;
    Restart();
  }
  /// Somebody sets the wall clock.
  void SetClockAhead(Duration time) {
    now_.wall.micros += std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  }

  const JobRecord& Job(JobId job) const;
  const NodeRecord& Node(const std::string& node) const { return *reactor_.state().FindNode(NodeId(node)); }
  RunKey RunOf(JobId job) const { return {job, Job(job).generation}; }
  /// "prepare 1/1", "start 1/1", "stop 1/1", "checkpoint-stop 1/1", "forget 1/1", "disconnect": what was sent
  /// to the node since it was last asked.
  std::vector<std::string> Sent(const std::string& node);
  /// The last command to start ranks that the node got.
  const SendStart& LastStart(const std::string& node) const { return starts_.at(node); }
  /// The last command to end them.
  const SendStop& LastStop(const std::string& node) const { return stops_.at(node); }
  /// "QUEUED", "STARTING", ...: the states that the job's history names, without repetitions.
  std::vector<std::string> History(JobId job) const;
  std::string WhyWaits(JobId job) const;
  /// The texts of the record of decisions since it was last asked, without those of jobs' states.
  std::vector<std::string> Decisions() { return std::exchange(decisions_, {}); }
  /// The last line of the job's history.
  const AppendEvent& LastEvent(JobId job) const;

  Reactor& reactor() { return reactor_; }
  Now now() const { return now_; }
  /// Takes over what a call to reactor() asked for.
  void Take(Actions actions);

 private:
  static Submission SubmissionOf(const std::string& name, const Want& want);
  void Settle(Actions actions);
  /// What `order` asks of the reactor.
  Status Ask(const std::function<Status(Actions&)>& order);

  CoreSettings settings_;
  Reactor reactor_;
  Now now_{Instant(std::chrono::hours(1)), WallTime{1'000'000'000'000'000}};
  uint64_t next_session_ = 1;
  std::map<std::string, uint64_t> sessions_;
  std::set<std::string> silent_;
  std::map<std::string, std::vector<std::string>> sent_;
  std::map<std::string, SendStart> starts_;
  std::map<std::string, SendStop> stops_;
  std::vector<AppendEvent> history_;
  std::vector<std::string> decisions_;
};

/// A reactor that knows what the old one would have stored, and nothing else.
Reactor RestartedFrom(const Reactor& old, const CoreSettings& settings, Now now);

/// Ways in which a rank ends.
inline RankExit ExitCode(uint32_t rank, int code, std::string line = "") {
  return {.rank = rank, .exit_code = code, .last_error_line = std::move(line)};
}
inline RankExit Killed(uint32_t rank, int signal, std::string line = "") {
  return {.rank = rank, .signal = signal, .last_error_line = std::move(line)};
}

}  // namespace imgd
