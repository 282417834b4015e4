#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/core/actions.h"
#include "server/core/cluster_state.h"
#include "server/core/scheduler.h"
#include "server/core/stall.h"
#include "server/core/types.h"

namespace imgd {

/// What the core decides by.
struct CoreSettings {
  Duration heartbeat = std::chrono::seconds(3);
  Duration lost_after = std::chrono::seconds(45);
  Duration prepare_timeout = std::chrono::seconds(30);  ///< for the rendezvous port
  Duration start_timeout = std::chrono::minutes(10);    ///< until every rank trains
  Duration settle = std::chrono::seconds(2);            ///< for the next report of ranks that are gone
  Duration report_timeout = std::chrono::minutes(5);    ///< for a run started by hand to be heard again
  Quotas quotas;
  std::string currency;                             ///< of nodes' prices, for people; may be empty
  Duration half_life = std::chrono::hours(7 * 24);  ///< of what users have had; zero: it does not matter
  Shares shares;                                    ///< of users and projects in what all have
  /// A job that waits gains a step of priority each time; zero: none.
  Duration aging = std::chrono::hours(24);
  bool preemption = true;                         ///< jobs of a lower priority make room
  uint32_t set_aside_after = 3;                   ///< different jobs that fail on a node in a row; 0: never
  Duration most_skew = std::chrono::seconds(10);  ///< of nodes' clocks; zero: it does not matter
  /// No start from now on has a lower number: the state is a backup's, after which others may have been given
  /// out. Zero: any follows on the job's last.
  Generation first_generation;
  /// After it was last heard of, a lost node is forgotten; zero: never.
  Duration lost_nodes_kept_for = std::chrono::hours(7 * 24);
};

/// A job as submitted.
struct Submission {
  JobKind kind = JobKind::kTraining;
  bool per_node = false;  ///< as in JobRecord
  std::string name;
  std::string owner;
  std::string project;
  int priority = 0;
  uint32_t nodes = 1;                    ///< as in JobRecord
  uint32_t max_nodes = 0;                ///< the same
  int64_t resize_interval_ms = 600'000;  ///< the same
  uint32_t ranks_per_node = 1;
  Needs needs;
  int64_t grace_ms = 10'000;
  uint32_t max_restarts = 10;
  int64_t time_limit_ms = 0;
  bool preemptible = true;
  JobId rerun_of;  ///< the job whose file it was made from; JobId() for none
  std::vector<Dependency> after = {};
  WallTime not_before = {};                       ///< zero: at once
  std::vector<SweepSetting> sweep_settings = {};  ///< of a member of a sweep
  std::string checkpoint_parent;                  ///< the job's own folder is made below it
};

/// Jobs of one file, as submitted.
struct SweepSubmission {
  std::string name;
  std::string owner;
  uint32_t max_running = 0;  ///< 0: any number
  std::optional<Halving> halving;
  std::vector<Submission> members;  ///< at least one; they have numbers one after the other
};

/// The record of a job that was just submitted.
JobRecord NewJob(const Submission& submission, JobId id, const std::string& cluster_id, WallTime now);

/// What becomes of a job's time limit.
struct TimeLimitChange {
  std::optional<int64_t> to_ms;  ///< 0: for ever
  int64_t by_ms = 0;             ///< without `to_ms`: longer, or shorter
};

/// A run that somebody started by hand, as its rank 0 tells it.
struct HandStart {
  std::string name;
  std::string owner;
  std::string project = {};
  uint32_t nodes = 1;
  uint32_t ranks_per_node = 1;
  std::string checkpoint_dir;
  std::vector<std::string> hosts;  ///< rank 0's first, never empty
  std::string token;               ///< name of the token that it reports with
};

/// A node's part of a run, as the node tells it.
struct RunReport {
  std::string cluster;  ///< whose daemon started it; empty for this one
  RunKey run;
  RunPhase phase = RunPhase::kUnheard;
  std::vector<RankExit> exits;
  std::string start_error;
  std::vector<uint32_t> devices;  ///< that it holds; only looked at where the cluster is another
};

/// What a node says of its health.
struct Health {
  Problems problems;
  std::optional<Notice> notice = {};
  std::optional<Duration> clock_ahead;  ///< of the daemon's; negative where it is behind; nothing: not told
};

/// A node that joins.
struct NodeHello {
  NodeId node;
  std::string agent_id;
  std::string agent_version;
  std::string incarnation = {};  ///< another one each time that the agent's process starts; may be empty
  std::string address;
  std::string filesystem_id;
  std::vector<Device> devices;
  std::vector<SharedFolder> shared_folders;
  Labels labels;
  std::vector<RunReport> runs;
  Health health = {};
  double price_per_hour = 0;         ///< of the whole node
  std::string metrics_address = {};  ///< as in NodeRecord
  bool metrics_relayed = false;      ///< as there
};

struct HeldDevices;
struct Verdict;
class WaitTexts;

/// Decides what follows from each thing that happens: one function an event, each of which adds what is to be
/// done to `out`. Pure: no clock, no I/O; the same events give the same actions. One owner thread.
///
/// Commands to nodes are not remembered as sent for longer than a connection: what a node should do is
/// compared with what it said it does, at each Hello and after each event, so that nothing depends on a
/// message that got lost.
///
/// After the events of a batch: Settle(), and Schedule() then or soon, then Commit() when everything is
/// durable, else Rollback().
class Reactor {
 public:
  Reactor(CoreSettings settings, std::string cluster_id);

  /// Goes on from what was stored. `next_job` is the first number that no job ever had.
  void Restore(std::vector<JobRecord> jobs, std::vector<NodeRecord> nodes, JobId next_job, Now now,
               std::map<std::string, Usage> usage = {}, std::vector<SweepRecord> sweeps = {},
               std::map<std::string, Account> accounts = {});

  /// Whether this job may be submitted, or all `members` of a sweep, which come after the same ones as it
  /// does. Errors: kNotFound for a job that it comes after and that nobody knows; kFailedPrecondition where
  /// that has ended otherwise than it had to, or the quotas don't allow as many in the queue;
  /// kInvalidArgument for more than kMostWaits.
  Status MaySubmit(const Submission& submission, const std::vector<Submission>& members = {}) const;
  JobId OnSubmit(const Submission& submission, Now now, Actions& out);
  /// Returns the number of the first; the others follow.
  JobId OnSubmitSweep(const SweepSubmission& submission, Now now, Actions& out);
  /// Errors: kNotFound; kFailedPrecondition when the job ended otherwise. Cancelling twice is no error.
  Status OnCancel(JobId job, bool checkpoint_first, const std::string& actor, Now now, Actions& out);

  // What somebody asks of a job. Errors: kNotFound; kFailedPrecondition with what is possible instead; of all
  // for one that has ended or that was started by hand.

  /// PAUSED: at once where it waits, else when its run has ended, through a checkpoint where it trains.
  Status OnPause(JobId job, const std::string& actor, Now now, Actions& out);
  /// Back in the queue, in its old place.
  Status OnResume(JobId job, const std::string& actor, Now now, Actions& out);
  /// Off its nodes, through a checkpoint; they are avoided for its next start. Refused where no others could
  /// hold it.
  Status OnMove(JobId job, const std::string& actor, Now now, Actions& out);
  Status OnSetPriority(JobId job, int priority, const std::string& actor, Now now, Actions& out);
  Status OnSetTimeLimit(JobId job, TimeLimitChange change, const std::string& actor, Now now, Actions& out);

  /// Nothing new is placed on the node; with `drain`, what runs there is ended through a checkpoint and goes
  /// back to the queue. Errors: kNotFound; kFailedPrecondition where it is so already.
  Status OnSetAside(const NodeId& node, bool drain, const std::string& reason, const std::string& actor,
                    Now now, Actions& out);
  /// Undoes the same. Errors: as above.
  /// Errors: kNotFound; kFailedPrecondition where it is not lost, or a job that has not ended ran there last.
  Status OnForget(const NodeId& node, const std::string& actor, Now now, Actions& out);
  Status OnReturn(const NodeId& node, bool drained, const std::string& actor, Now now, Actions& out);

  /// A run that imgd did not start: RUNNING at once, and never in the queue or on a node. Its trainer's
  /// events come by the functions below, as of generation 1, rank 0.
  JobId OnStartedByHand(const HandStart& start, Now now, Actions& out);
  /// It was heard; one that had been given up for its silence is RUNNING again.
  void OnHeardByHand(JobId job, Now now, Actions& out);
  /// Takes back a job that ended so long ago that it is no longer remembered.
  void Recall(JobRecord job);

  /// Errors: kAlreadyExists when another agent of that name is connected. `session` is new for each stream.
  Status OnAgentHello(const NodeHello& hello, uint64_t session, Now now, Actions& out);
  void OnAgentGone(const NodeId& node, uint64_t session);
  /// It said something, whatever that is. One that is lost has to say Hello again.
  void OnHeard(const NodeId& node, Now now);
  /// With a heartbeat. A node with a problem gets nothing new until it has none. The runs of one that is
  /// being taken back are ended through a checkpoint, and go back to the queue at once.
  void OnHealth(const NodeId& node, const Health& health, Now now, Actions& out);
  void OnRunPrepared(const NodeId& node, RunKey run, const std::string& address, uint32_t port,
                     const std::string& error, Now now, Actions& out);
  void OnRunStatus(const NodeId& node, const RunReport& report, Now now, Actions& out);
  /// Where a node's ranks are. Nothing of it is stored; with the next tick a gang of which a rank is stopped,
  /// or which stands still for longer than what its last rank does may take, is ended.
  void OnRunPulse(const NodeId& node, RunKey run, std::vector<RankPulse> ranks, Now now);

  /// True when the generation is the job's latest and the rank's place in it is that node, so that what its
  /// trainer reports counts; else it is counted as stale.
  bool AcceptsReportsOf(const NodeId& node, RunKey run, uint32_t rank);
  /// Some of what its ranks wrote has come, reports or lines of a log. Where they are gone, more of it may be
  /// on its way, and `settle` begins anew.
  void OnRelayed(RunKey run, Now now);
  void OnTrainerStarted(RunKey run, uint32_t rank, Now now, Actions& out);
  /// Rank 0 says how long the rest of the training will take.
  void OnTrainerProgress(RunKey run, Duration left, Now now);
  void OnTrainerCheckpoint(RunKey run, Checkpoint checkpoint, Now now, Actions& out);
  /// Validation after an epoch. Where the job's sweep halves, the worst that have reached the same rung are
  /// stopped.
  void OnTrainerEpoch(RunKey run, const EpochFigures& figures, Now now, Actions& out);
  void OnTrainerFinished(RunKey run, uint32_t rank, Now now, Actions& out);
  void OnTrainerFailed(RunKey run, RankFailure failure, Now now, Actions& out);
  /// Some of what a rank reported can't be read: a line of the job's history, nothing more.
  void OnTrainerEventsLost(const NodeId& node, RunKey run, uint32_t rank, uint64_t count,
                           const std::string& reason, Now now, Actions& out);

  /// Time passes. Silence of nodes is counted here, at most `heartbeat` a call: what the daemon slept through
  /// is not held against them.
  void OnTick(Now now, Actions& out);

  /// Starts what fits and gives the others their reasons. Cheap when nothing changed.
  void Schedule(Now now, Actions& out);
  /// What follows from the batch's events besides a plan. Schedule() does it too.
  void Settle(Now now, Actions& out);
  /// Schedule() would make a plan. It may be put off, so that one plan takes many batches' changes.
  bool WantsToSchedule() const { return dirty_; }

  void Commit();
  /// Decides by other ones from now on. Of a time that a job or node has spent already nothing is taken back.
  /// Between two batches.
  void SetSettings(CoreSettings settings);

  /// Undoes the batch. What nodes said in it is forgotten, so every one has to say Hello again: the caller
  /// ends their streams.
  void Rollback();

  const ClusterState& state() const { return state_; }
  /// Nodes on which the job failed no longer say which it was, but count it all the same. Once the job is
  /// about to be deleted.
  void ForgetInStrikes(JobId job);
  /// Forgets a job that has ended and was deleted; between two transactions.
  void Drop(JobId job) { state_.DropEnded(job); }
  /// Users and projects that had or have something, or that a quota names, by name.
  std::vector<AccountUse> Accounts(Now now) const;
  /// The cluster as people are told of it: what is kept for jobs that wait for their retry is theirs, and
  /// counts for their quotas.
  Snapshot MakeSnapshot(Now now) const;
  /// By the latest plan; null where nobody waits for devices.
  const Reservations& reserved() const { return *reserved_; }
  uint64_t stale_reports() const { return stale_reports_; }
  JobId next_job() const { return next_job_; }

 private:
  JobId TakeJobId();
  JobId Add(const Submission& submission, JobId sweep, Now now, Actions& out);
  Status MayComeAfter(const Dependency& dependency) const;
  bool SettleWaits(Now now, Actions& out);
  void TellThoseAfter(JobId ended);
  void NoteHeldBack(JobId job, Now now, Actions& out);
  void LetGoInTime(WallTime now);
  void StopWorst(JobId sweep, Now now, Actions& out);
  void Halve(JobId job, std::string why, Now now, Actions& out);
  const JobRecord* ActiveRun(RunKey run) const;
  void JudgePulses(Now now, Actions& out);
  void NoteWhere(RunKey run, RankExit& exit) const;
  void ApplyReport(const NodeId& node, const RunReport& report, Now now, Actions& out);
  void NoteExits(const NodeId& node, const RunReport& report, Now now, Actions& out);
  void NoteProcesses(JobId job, const Part& part);
  void NoteGone(const NodeId& node, RunKey run);
  void RefuseRun(const NodeId& node, const RunReport& report, Actions& out);
  bool IsForeign(const RunReport& report) const;
  void NoteForeign(const NodeId& node, const RunReport& report);
  void ReconcileUnlisted(const NodeHello& hello, bool restarted);
  void NoteUnlisted(JobRecord& job, Part& part, bool restarted);
  void LoseNode(const NodeId& node, std::string_view besides, Now now, Actions& out);
  void CountSilence(Duration passed, Now now, Actions& out);
  void CountSilenceByHand(Duration passed, Now now, Actions& out);
  void EndByHand(JobId job, JobState to, Reason reason, Now now, Actions& out);
  void CheckTimeouts(const JobRecord& job, Now now);
  void CheckTimeLimit(const JobRecord& known, Now now);
  /// `node`: whose fault it is; an empty name where nobody knows.
  void AddTrouble(JobId job, ReasonCode code, std::string text, const NodeId& node = {});

  /// Works off pending_: what follows for each job from what became known of it.
  void Drain(Now now, Actions& out);
  void Advance(JobId job, Now now, Actions& out);
  void BeginStop(JobRecord& job, Now now);
  Result<JobRecord*> JobForOrder(JobId job, std::string_view what);
  void AskBack(JobRecord& job, StopFor stop, const std::string& actor, std::string text, Now now,
               Actions& out);
  void AskBackAllOn(const NodeId& node, StopFor stop, const std::string& actor, const std::string& text,
                    Now now, Actions& out);
  Status CouldMove(const JobRecord& job) const;
  void NoteChange(const JobRecord& job, std::string text, const std::string& actor, Now now, Actions& out);
  void NoteNode(const NodeId& node, ReasonCode code, std::string text, const std::string& actor, Now now,
                Actions& out);
  void NoteHello(const NodeHello& hello, Now now, Actions& out);
  void NoteSkew(const NodeId& node, bool skewed, Now now);
  void NoteHealth(const NodeId& node, Problems problems, Now now, Actions& out);
  void NoteNotice(const NodeId& node, const std::optional<Notice>& notice, Now now, Actions& out);
  std::chrono::milliseconds GraceFor(const JobRecord& job, Now now) const;
  std::optional<std::string> SkewOf(const Health& health) const;
  void NoteEmptied(Now now, Actions& out);
  Status MayRunLonger(const JobRecord& job, int64_t limit_ms, Now now) const;
  std::string WhoCameBefore(JobId job, const Reservations& before) const;
  void NoteReservation(const Reservations& all_before, const Reservation& reserved, Now now, Actions& out);
  void NoteNotReserved(const Reservation& gone, const Reservations& before, const Snapshot& cluster, Now now,
                       Actions& out);
  uint64_t LastStepOf(RunKey run) const;
  void SyncParts(JobId job, Now now, Actions& out);
  void SendTo(JobRecord& job, size_t part, Command command, Now now, Actions& out);
  void Conclude(JobId job, Now now, Actions& out);
  void Requeue(JobRecord& job, bool counts, Now now);
  std::string JudgeNodes(const JobRecord& job, const Verdict& verdict, Now now, Actions& out);
  void TakeBackExclusions(const JobRecord& job, Now now, Actions& out);
  void UseAgain(NodeRecord& node, const JobRecord& job, std::string_view why, Now now, Actions& out);
  std::string Exclude(const JobRecord& job, const NodeId& node, const LogMatch& match, Now now, Actions& out);
  std::string Strike(const JobRecord& job, const NodeId& node, const std::string& cause, Now now,
                     Actions& out);
  void ClearStrikes(const JobRecord& job, const NodeId& but);
  void TakeBackStrikes(const JobRecord& job, Now now, Actions& out);
  std::string WhyNotSetAside(const NodeId& node) const;
  std::string SetAsideByImgd(const NodeId& node, AsideBy by, std::string reason, Now now, Actions& out);
  std::string PutAside(const NodeId& node, AsideBy by, std::string reason, Now now, Actions& out);
  std::vector<PartNode> NodesOf(const JobRecord& job) const;
  std::vector<NodeId> BlamedByGang(const JobRecord& job, const Verdict& verdict) const;
  std::string Blame(const JobRecord& job, const std::vector<NodeId>& nodes, const std::string& cause, Now now,
                    Actions& out);
  void TryElsewhere(JobId job, const std::vector<NodeId>& blamed);
  void FindElsewhere(Now now);
  void StartJob(const Placement& placement, Now now, Actions& out);
  std::map<std::string, double> HadLately(Now now) const;
  void PutInOrder(Now now);
  void Charge(JobId job, Now now);
  void ChargeOn(const NodeRecord& node, Now now);
  void ChargeAll(Now now);
  bool ForgettingDue(Now now);
  void ForgetOld(WallTime now);
  std::optional<JobId> LastOn(const NodeId& node) const;
  void ForgetLostNodes(Now now, Actions& out);
  HeldDevices HeldBy(const JobRecord& job) const;
  enum class WantedOf : uint8_t { kNothing, kTime, kAll };
  std::map<std::string, Account> AccountsAt(Now now, WantedOf (*wanted)(const Quota&)) const;
  void FillAllowances(Snapshot& snapshot, Now now) const;
  void NoteRelease(const Snapshot& snapshot);
  void Preempt(const std::vector<JobId>& victims, JobId for_job, const Snapshot& cluster, Now now,
               Actions& out);
  void NotePassedOver(JobId job, const Reservation* kept, size_t place, Now now, Actions& out);
  void SetWaits(const std::vector<WaitChange>& changes, const Snapshot& cluster, Now now, Actions& out);
  void SetWait(size_t place, ReasonCode code, WaitTexts& texts, Now now, Actions& out);
  void Regroup(Now now, Actions& out);
  void Grow(Snapshot& cluster, Now now, Actions& out);
  void GiveUpGrowth(JobId job, Now now);
  bool CanTake(const Part& part, bool own) const;
  std::vector<JobId> MayGrow(Now now);
  bool BackoffDue(Now now) const;
  /// `memory`: a snapshot that is not needed any more, whose memory is used again.
  Snapshot FreeAndHeld(Now now, Snapshot memory = {}) const;
  void AddHolder(const Holding& holding, Snapshot& snapshot) const;
  void AddStarted(const Placement& placement, Snapshot& snapshot) const;
  void AddPlanned(Snapshot& snapshot) const;

  CoreSettings settings_;
  std::string cluster_id_;
  ClusterState state_;
  JobId next_job_{1};
  /// Of the latest plan, as the next.
  std::shared_ptr<const Reservations> reserved_ = std::make_shared<const Reservations>();
  std::vector<Placement> kept_;
  std::map<JobId, std::set<JobId>> passed_over_;  ///< who was told of it, and for which jobs; never stored
  std::set<JobId> pending_;
  /// Nodes without which jobs are to be tried, where others are free; for the next Settle().
  std::map<JobId, std::set<NodeId>> elsewhere_;
  std::vector<AppendDecision> news_;  ///< of nodes that are heard again, for the next Schedule()
  bool dirty_ = true;                 ///< something changed that the scheduler looks at
  Instant next_backoff_ = Instant::max();
  Instant next_growth_ = Instant::max();       ///< when a job may grow that may not yet
  std::map<JobId, Instant> could_grow_since_;  ///< of those that may; never stored
  Instant last_tick_{};
  std::optional<WallTime> next_aging_;    ///< when a job gains a step by its age
  std::optional<WallTime> next_release_;  ///< when who has used up what they may can start something again
  Instant next_forgetting_{};
  uint64_t stale_reports_ = 0;
  /// Where the ranks of a job's latest start are.
  struct Watched {
    Generation generation;
    GangPulses ranks;
    bool unjudged = false;  ///< some came since the last tick
  };
  std::map<JobId, Watched> watched_;  ///< by job; never stored
  std::vector<JobId> concluded_;      ///< since the last commit: if that fails they are watched as before
  Snapshot last_seen_;                ///< by the last pass; nothing but memory for the next
  std::shared_ptr<Layout> layout_;    ///< the same, of the nodes
};

}  // namespace imgd
