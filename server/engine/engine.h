#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "imgd/v1/agent.pb.h"
#include "server/core/reactor.h"
#include "server/engine/admission.h"
#include "server/engine/engine_meters.h"
#include "server/engine/hub.h"
#include "server/engine/log_patterns.h"
#include "server/engine/node_readings.h"
#include "server/engine/orders.h"
#include "server/engine/pace.h"
#include "server/engine/place_checks.h"
#include "server/engine/refusals.h"
#include "server/notify/notify_config.h"
#include "server/store/log_store.h"
#include "server/store/metrics_store.h"
#include "server/store/state_store.h"

namespace imgd {

/// The daemon's end of an agent's stream. Thread-safe; none of its functions blocks.
class AgentLink {
 public:
  virtual ~AgentLink() = default;
  virtual void Send(v1::ConnectResponse message) = 0;
  /// Ends the stream with the error as its status.
  virtual void Close(Error why) = 0;
  /// The message handed over last is dealt with; the next may come.
  virtual void Handled() = 0;
};

v1::LogMatch ToProto(const LogMatch& match);

/// Of Engine::events(): the topic whose versions are the numbers of decisions. No job has this number.
inline constexpr JobId kDecisionsTopic{};

/// The cluster as it was after a batch; immutable, so that those who ask hold up nobody. In a large cluster
/// under load it is older than the last answer, by at most 20 times what it takes to make; names of data
/// sets, tokens and nodes that joined, and trouble, never are.
struct ClusterView {
  Snapshot snapshot;
  Ranking ranking;  ///< that the queue's order depends on
  std::vector<QueuedJob> queue;
  std::vector<NodeRecord> nodes;  ///< by name
  std::map<NodeId, NodeReadings> readings;
  std::shared_ptr<const std::map<std::string, DatasetRecord>> datasets;  ///< by name
  std::shared_ptr<const std::map<std::string, TokenRecord>> tokens;      ///< by name
  std::shared_ptr<const Admissions> admissions;
  std::shared_ptr<const Quotas> quotas;
  uint64_t stale_reports = 0;
  std::string trouble;  ///< why nothing can be stored, for people; empty when it can
  PlaceChecks checks;   ///< against these nodes and quotas
};

struct EngineSettings {
  std::filesystem::path state_dir;
  CoreSettings core;
  uint64_t log_kept_bytes = 256ull << 20;
  uint64_t events_kept = 100'000;  ///< decisions
  Duration events_kept_for = std::chrono::hours(30 * 24);
  // After a job's end; 0 for ever.
  Duration jobs_kept_for{};
  Duration metrics_kept_for{};
  Duration logs_kept_for{};
  // Of all jobs together; 0: without a limit.
  uint64_t logs_total_bytes = 0;
  uint64_t metrics_total_bytes = 0;
  std::vector<LogPattern> log_patterns = BuiltInPatterns();
  NotifyConfig notifications;
  Duration tick = std::chrono::milliseconds(200);
  std::string version;
  std::function<void()> on_tick;  ///< on the core thread, about every `tick`; may be empty
  /// Whether a job may be given this priority or time_limit (which stands at 0 for none); may be empty.
  std::function<Status(const JobRecord& job, JobOrder::What what, int64_t value)> may_change;
};

/// Settings that came from a file that was read again.
struct SettingsOrder {
  EngineSettings settings;
  std::string actor;
  std::string text;  ///< of the event: what was changed
};

/// Takes what people are to be told; on the core thread, without blocking.
struct NoticeSink {
  std::function<void(Notification notice)> add;            ///< is stored
  std::function<void(const std::string& target)> dropped;  ///< is not, since too many wait
  std::function<void(JobId job)> forget;                   ///< was deleted: nothing of it is told any more
};

/// Runs the core: one thread takes what has come in, steps the reactor for each, stores everything in one
/// commit, and only then answers, acknowledges and sends. Owns the databases' writing connections.
///
/// When the commit fails (a full disk), nothing of the batch is acknowledged: those who asked get the error,
/// agents are disconnected so that they report anew, and the memory is put back to what is stored. The view
/// says so, and a probe tells when there is room again; then everything goes on.
class Engine {
 public:
  /// Opens the databases and goes on from them. The thread starts with Start(). Errors: those of the store.
  static Result<std::unique_ptr<Engine>> Open(EngineSettings settings, const Clock* clock);
  ~Engine();

  void Start();
  /// Deals with what has come in, then ends the thread. What comes later is refused.
  void Stop();

  // Thread-safe. Callbacks run on the core thread, after the commit; they must not block.

  /// Errors: kResourceExhausted when too many wait or the disk is full, kUnavailable when the daemon ends.
  void Submit(SubmitOrder order, std::function<void(Result<SubmitAnswer>)> done);
  /// Errors: as Reactor::OnCancel, and as above.
  void Cancel(JobId job, bool checkpoint_first, std::string actor, std::function<void(Status)> done);

  /// Ends all jobs of the sweep that have not ended; `done` gets how many. Errors: kNotFound, and as above.
  void CancelSweep(JobId sweep, bool checkpoint_first, std::string actor,
                   std::function<void(Result<uint32_t>)> done);

  /// Removes an ended job and all that is kept of it. Errors: kNotFound, kFailedPrecondition, and as above.
  void Delete(JobId job, std::string actor, std::function<void(Status)> done);

  /// Errors: those of the reactor, and as above.
  void ChangeJob(JobOrder order, std::function<void(Status)> done);
  void ChangeNode(NodeOrder order, std::function<void(Status)> done);

  /// Asks a rank for a profile of its next steps; `done` gets the name of the rank's node. Errors: kNotFound
  /// for the job and the rank, kFailedPrecondition where it does not run or its node is away, and as above.
  void Profile(JobId job, uint32_t rank, uint32_t steps, std::function<void(Result<std::string>)> done);

  /// What each account has had and may have. Errors: kResourceExhausted, kUnavailable.
  void ListUsage(std::function<void(Result<std::vector<AccountUse>>)> done);

  /// What it shows to Prometheus, also when too many requests wait. Errors: kUnavailable.
  void Measure(std::function<void(Result<EngineFigures>)> done);

  /// What a node's agent shows to Prometheus, which it is asked for by its stream. Errors: kNotFound;
  /// kFailedPrecondition for an agent that is not to be asked; kUnavailable for one that is away;
  /// kDeadlineExceeded for one that does not answer within `limit`; kResourceExhausted.
  void Scrape(NodeId node, Duration limit, std::function<void(Result<std::string>)> done);

  /// Errors: kNotFound, kAlreadyExists, of facts kFailedPrecondition, and as Submit.
  void ChangeDataset(DatasetOrder order, std::function<void(Result<DatasetAnswer>)> done);

  /// Errors: kAlreadyExists, kNotFound, and as Submit.
  void ChangeToken(TokenOrder order, std::function<void(Result<TokenRecord>)> done);

  /// Goes by other settings from now on, and records what was changed as an event. Those of the place where
  /// things are, the time between heartbeats, the version and `on_tick` stay. Errors: as Submit.
  void ChangeSettings(SettingsOrder order, std::function<void(Status)> done);

  /// Records something that somebody did to imgd itself as an event. Errors: as Submit.
  void NoteAdministered(std::string actor, std::string text, std::function<void(Status)> done);

  /// Records something that somebody did with a job or a node, and that changes neither. Errors: as Submit.
  void Note(imgd::AppendDecision note, std::function<void(Status)> done);

  /// Tells the node's agent something, now; `done` gets its version. Errors: kNotFound; kUnavailable where it
  /// is out of reach; and as Submit.
  void Tell(NodeId node, v1::ConnectResponse message, std::function<void(Result<std::string>)> done);

  /// Where the rank of a running job is. Errors: kNotFound for the job and the rank, kFailedPrecondition
  /// where it does not run or its node is away, and as Submit.
  void FindRank(JobId job, uint32_t rank, std::function<void(Result<RankSite>)> done);

  /// Errors: as EnrolService, and as Submit.
  void ChangeAdmission(AdmissionOrder order, std::function<void(Result<AdmissionAnswer>)> done);

  /// Errors: kAlreadyExists when the key belongs to a job of another content, and as Submit.
  void StartByHand(HandStartOrder order, std::function<void(Result<HandAnswer>)> done);
  /// Stores what follows on what is stored of the run. Errors: kNotFound; kFailedPrecondition for a job that
  /// imgd started; kPermissionDenied for another token than the run began with; and as Submit.
  void ReportByHand(HandReport report, std::function<void(Result<HandAnswer>)> done);

  /// Before Start(): where notices go, first those of earlier that were not settled.
  void TellBy(NoticeSink sink);
  /// They need no delivery any more.
  void OnSettled(std::vector<std::string> notices);

  /// A number for a new stream.
  uint64_t NewSession();
  /// One message at a time of each link: the next after Handled().
  void OnAgentMessage(std::shared_ptr<AgentLink> link, uint64_t session, v1::ConnectRequest message);
  void OnAgentGone(uint64_t session);
  /// Ends all agents' streams, and those that would begin.
  void CloseAgents();

  /// Before Start(): `changed` is called on the core thread when storing begins to fail, and when it works
  /// again.
  void OnTroubleChanged(std::function<void(bool in_trouble)> changed) {
    trouble_changed_ = std::move(changed);
  }

  std::shared_ptr<const ClusterView> View() const;
  /// Versions are event numbers.
  Hub& events() { return events_; }
  /// Versions count additions to the job's logs.
  Hub& logs() { return log_news_; }
  const std::string& cluster_id() const { return cluster_id_; }
  std::filesystem::path log_folder() const { return state_dir_ / "logs"; }
  const std::filesystem::path& state_dir() const { return state_dir_; }
  const std::string& version() const { return version_; }
  /// Number of the newest event that may be read of the job; 0 when the databases may be asked for it. Ask
  /// before and after reading them.
  uint64_t PublishedEvent(JobId job) const { return events_.Version(job); }

 private:
  /// What is asked for, and who gets the answer.
  template <typename Order, typename Answer>
  struct Question {
    Order order;
    std::function<void(Answer)> done;
  };
  using SubmitInput = Question<SubmitOrder, Result<SubmitAnswer>>;
  struct CancelInput {
    JobId job;
    bool checkpoint_first;
    std::string actor;
    std::function<void(Status)> done;
  };
  /// Of a large sweep some at a time, with other inputs between.
  struct SweepCancelInput {
    JobId sweep;
    bool checkpoint_first;
    std::string actor;
    std::function<void(Result<uint32_t>)> done;
    uint32_t next = 0;       ///< so many were looked at, from the last one on
    uint32_t cancelled = 0;  ///< of those before
  };
  struct JobDeletion {
    JobId job;
    std::string actor;
  };
  using DeleteInput = Question<JobDeletion, Status>;
  struct ProfileInput {
    JobId job;
    uint32_t rank;
    uint32_t steps;
    std::function<void(Result<std::string>)> done;
  };
  struct ScrapeInput {
    NodeId node;
    Duration limit;
    std::function<void(Result<std::string>)> done;
  };
  struct UsageInput {
    std::function<void(Result<std::vector<AccountUse>>)> done;
  };
  struct MeasureInput {
    std::function<void(Result<EngineFigures>)> done;
  };
  using JobOrderInput = Question<JobOrder, Status>;
  using NodeOrderInput = Question<NodeOrder, Status>;
  using DatasetInput = Question<DatasetOrder, Result<DatasetAnswer>>;
  using TokenInput = Question<TokenOrder, Result<TokenRecord>>;
  using SettingsInput = Question<SettingsOrder, Status>;
  /// A thing of which there is nothing but its event; none where the text is empty.
  using NoteInput = Question<imgd::AppendDecision, Status>;
  struct RankOrder {
    JobId job;
    uint32_t rank;
  };
  using RankInput = Question<RankOrder, Result<RankSite>>;
  struct TellOrder {
    NodeId node;
    v1::ConnectResponse message;
  };
  using TellInput = Question<TellOrder, Result<std::string>>;
  using AdmissionInput = Question<AdmissionOrder, Result<AdmissionAnswer>>;
  struct SettledInput {
    std::vector<std::string> notices;
  };
  using HandStartInput = Question<HandStartOrder, Result<HandAnswer>>;
  struct HandReportInput {
    HandReport report;
    std::function<void(Result<HandAnswer>)> done;
  };
  struct AgentInput {
    std::shared_ptr<AgentLink> link;
    uint64_t session;
    v1::ConnectRequest message;
    WallTime received;  ///< what it says of the time is of then; the core may be busy for longer
  };
  struct GoneInput {
    uint64_t session;
  };
  struct CloseInput {};
  using Input =
      std::variant<SubmitInput, CancelInput, SweepCancelInput, DeleteInput, JobOrderInput, NodeOrderInput,
                   ProfileInput, ScrapeInput, UsageInput, MeasureInput, DatasetInput, TokenInput,
                   AdmissionInput, SettingsInput, NoteInput, TellInput, RankInput, HandStartInput,
                   HandReportInput, SettledInput, AgentInput, GoneInput, CloseInput>;

  struct Connected {
    std::shared_ptr<AgentLink> link;
    NodeId node;
    Duration clock_ahead{};  ///< of imgd's, by its latest heartbeat
  };
  /// An agent was asked for its metrics.
  struct Scraping {
    uint64_t session;
    NodeId node;
    Instant deadline;
    std::function<void(Result<std::string>)> done;
  };
  /// What is to be done once the batch is durable, or has failed.
  using Done = std::function<void(const Status&)>;

  Engine(EngineSettings settings, const Clock* clock, StateStore state, MetricsStore metrics);

  void Push(Input input);
  bool Full();
  void Run();
  std::vector<Input> Take();
  void RunBatch(std::vector<Input> inputs);
  void SaveJobs();
  void SaveNodes();
  bool CommitBatch();
  void SaveUsed();
  void AfterCommit();
  void AfterFailure(const Error& error);
  void SetTrouble(std::string trouble);
  void ProbeStore();
  /// Nodes and queued jobs are so few that planning and showing them costs next to nothing.
  bool IsSmall() const;
  bool HasInputs() const;
  /// When the plan or the view that waits for its turn is due; never when none does.
  Instant NextPaced() const;
  /// The plan of a large cluster: after what was asked for has been answered.
  void ScheduleWhenDue();
  void SchedulePass(Actions& actions);
  void PublishWhenDue();
  void PublishView();

  void Handle(SubmitInput& input);
  void Handle(CancelInput& input);
  void Handle(SweepCancelInput& input);
  /// The submission's refusal, or nothing once `order` is ready to be stored.
  std::optional<Error> Refusal(SubmitOrder& order);
  Result<std::vector<Dependency>> FindAfter(const std::vector<AfterOrder>& wanted, const std::string& owner);
  std::optional<JobId> NewestNamed(const std::string& name, const std::string& owner);
  bool Recall(JobId job);
  Result<std::vector<JobId>> FindByName(const std::string& name, const std::string& owner);
  SubmitAnswer Store(SubmitOrder& order);
  /// The next members; whether others are left, in a sweep that is there.
  Result<bool> CancelSome(SweepCancelInput& input, Actions& actions);
  void Handle(JobOrderInput& input);
  void Handle(NodeOrderInput& input);
  Status MayChange(const JobOrder& order) const;
  Status Ask(const JobOrder& order, Actions& actions);
  Status Ask(const NodeOrder& order, Actions& actions);
  /// Of a job that the reactor does not know (any more): that it has ended, or that there is none.
  Status EndedOrUnknown(JobId job, std::string_view what);
  /// Why there is no rerun of that job. That of a sweep's job gets its name.
  std::optional<Error> CheckRerun(Submission& submission);
  void AppendDecision(const imgd::AppendDecision& decision, uint64_t job_event = 0);
  void TrimDecisions();
  void Handle(DeleteInput& input);
  /// The job, where it may be deleted.
  Result<JobRecord> Deletable(JobId job);
  /// Of a job that is Deletable(). `why` is a constant.
  void Remove(const JobRecord& job, const std::string& actor, std::string_view why);
  void SaveRemoved();
  void RemoveWhatIsOld();
  /// Figures or log lines of the job have come.
  void NoteLate(JobId job);
  /// The next jobs that ended so long ago, from `from` on, which moves; `more` is set where others may
  /// follow.
  std::vector<JobId> OldJobs(Duration kept_for, EndedJob& from, bool& more);
  /// The next that ended first, whose logs are what is too much; the next one that has figures.
  std::vector<JobId> JobsOverLogs(bool& more);
  std::vector<JobId> JobOverFigures(bool& more);
  void RemoveLogs(const std::vector<JobId>& jobs, const char* why);
  void RemoveFigures(const std::vector<JobId>& jobs, const char* why);
  /// Of what has gone, an event for many jobs; once they are all, or have been going for a minute.
  void NoteGone(const char* what, const std::vector<JobId>& jobs, const char* why);
  void TellWhatWent(bool all);
  void Handle(UsageInput& input);
  void Handle(MeasureInput& input);
  void Handle(ProfileInput& input);
  /// The job, which runs now by our doing.
  Result<const JobRecord*> RunningJob(JobId id);
  Result<RankSite> SiteOf(const JobRecord& job, uint32_t rank) const;
  Result<std::string> AskForProfile(const ProfileInput& input);
  void Handle(ScrapeInput& input);
  Result<uint64_t> SessionToScrape(const NodeId& node) const;
  void OnMetricsPage(const AgentInput& input);
  /// Ends those that are due, or all of a session, or all.
  void ExpireScrapes();
  void EndScrapesOf(uint64_t session);
  void EndAllScrapes();
  template <typename Ends>
  void EndScrapes(Ends ends, ErrorCode code, const char* why);
  void Handle(DatasetInput& input);
  void Handle(TokenInput& input);
  void Handle(AdmissionInput& input);
  void Handle(SettingsInput& input);
  void UseSettings(EngineSettings settings);
  void Handle(NoteInput& input);
  void Handle(TellInput& input);
  void Handle(RankInput& input);
  void Handle(HandStartInput& input);
  void Handle(HandReportInput& input);
  void Handle(SettledInput& input);
  void Handle(AgentInput& input);
  void Handle(GoneInput& input);
  void Handle(CloseInput& input);

  /// Refuses a request when too many wait.
  template <typename Asked, typename Order, typename Answered>
  void PushOrRefuse(Order order, Answered done);
  /// The call's answer once the batch is durable, or why it is not.
  template <typename T>
  void AnswerLater(std::function<void(Result<T>)> done, Result<T> answer);

  /// Why a request with this key can't be the one that `known` was made of; nothing when it is. `content` and
  /// `yaml` as in SubmitOrder.
  std::optional<Error> OtherContent(const KeyRecord& known, const std::string& key,
                                    const std::string& content, const std::string& yaml,
                                    const std::string& owner);
  /// Whether the stored file of the job, or of its sweep, is this one.
  bool IsStoredFile(JobId job, const std::string& yaml);
  std::optional<Error> RefusalOfSets(const SubmitOrder& order) const;
  void Promise(DatasetRecord record, JobId maker);
  /// The conversion has ended: what it was to make is there, or never will be.
  void SettlePromise(JobId maker, JobState ended);
  Result<DatasetAnswer> Change(DatasetOrder& order);
  /// What a conversion says of the set that it makes; of no other is anything taken.
  void OnDatasetProgress(JobId job, const v1::DatasetProgress& progress);
  void OnDatasetFacts(JobId job, const NodeId& node, const v1::DatasetFacts& facts);
  DatasetRecord* SetMadeBy(JobId job);
  void TakeFacts(DatasetRecord& set, v1::DatasetFacts facts, const std::string& told_by);
  Result<DatasetAnswer> TakeFacts(const DatasetOrder& order);
  Result<TokenRecord> Change(TokenOrder& order);
  Result<AdmissionAnswer> MakeJoinToken(AdmissionOrder& order);
  Result<AdmissionAnswer> RevokeJoinToken(const AdmissionOrder& order);
  Result<AdmissionAnswer> RevokeNode(const AdmissionOrder& order);
  Result<AdmissionAnswer> TakeJoin(const JoinOrder& order);
  bool RevokeInstances(const AdmissionOrder& order);
  void TakeInstance(const InstanceRecord& record, Duration most_age);
  /// An event of who made or took back what lets people or nodes in.
  void NoteCredential(const std::string& who, const std::string& did, NodeId node = NodeId());
  void NoteRefusal(const std::string& text);
  Result<HandAnswer> TakeStart(const HandStartOrder& order);
  Result<HandAnswer> TakeReport(const HandReport& report);
  bool HasGpu(RunKey run, uint32_t rank) const;
  RunReport ReportOf(const v1::RunStatus& status) const;
  NodeHello HelloOf(const v1::Hello& hello, WallTime received) const;
  void OnHello(const AgentInput& input);
  void OnMessage(const AgentInput& input, const NodeId& node);
  void OnTrainerEvents(const AgentInput& input);
  /// Stores the events that follow on those that are stored; returns the number of the last that then is.
  uint64_t TakeEvents(RunKey run, uint32_t rank, const NodeId& node,
                      const google::protobuf::RepeatedPtrField<v1::TrainerEvent>& events);
  void OnTrainerNote(RunKey run, uint32_t rank, const v1::TrainerEvent& event);
  void OnStep(RunKey run, uint32_t rank, const v1::TrainerEvent& event);
  void AddBusyRatios(JobId job, v1::StepMetrics& step) const;
  /// How long the rest will take, as rank 0 says.
  void NoteProgress(RunKey run, const v1::TrainerEvent& event);
  /// Of rank 0's node; zero where nothing is known of it.
  Duration ClockAhead(RunKey run) const;
  void CheckTrainerVersion(RunKey run, uint32_t rank, const NodeId& node, const std::string& version);
  void OnTrainerEvent(RunKey run, uint32_t rank, const NodeId& node, const v1::TrainerEvent& event);
  void OnLogLines(const AgentInput& input);
  v1::ConnectResponse MakeWelcome(const v1::Hello& hello);

  /// Stores, or keeps for sending, what the reactor asked for.
  void Record(Actions& actions);
  void Apply(const AppendEvent& action);
  void Apply(const imgd::AppendDecision& action);
  void Apply(const AppendRankExit& action);
  void Apply(const SaveCheckpoint& action);
  void Apply(const SaveRungResult& action);
  void Apply(const SendPrepare& action);
  void Apply(const SendStart& action);
  void Apply(const SendStop& action);
  void Apply(const SendForget& action);
  void Apply(const Disconnect& action);
  void SendToNode(const NodeId& node, v1::ConnectResponse message);
  void SendToSession(uint64_t session, v1::ConnectResponse message);
  void CloseSession(uint64_t session, Error why);
  /// `number`: of the event, in its job's history.
  void TellPeople(const AppendEvent& event, uint64_t number);
  void RemoveSettled();
  void AppendMetric(RunKey run, uint32_t rank, uint64_t sequence, EventKind kind, int64_t time_us,
                    std::string payload);
  uint64_t NextEventNumber(JobId job);
  /// The value, or notes that the batch has failed and returns T().
  template <typename T>
  T OrFail(Result<T> result);

  const Clock* clock_;
  std::filesystem::path state_dir_;
  std::string version_;
  std::string cluster_id_;

  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Input> queue_;                  // guarded by mutex_
  bool stopping_ = false;                    // guarded by mutex_
  uint64_t next_session_ = 1;                // guarded by mutex_
  std::shared_ptr<const ClusterView> view_;  // guarded by mutex_

  // Of the core thread alone:
  EngineSettings settings_;
  std::optional<EngineSettings> stored_settings_;  ///< what held before this batch, where it has changed
  std::shared_ptr<const Quotas> quotas_;           ///< of the settings
  StateStore state_;
  MetricsStore metrics_;
  LogStore log_store_;
  std::unique_ptr<LogMatcher> log_matcher_;
  Reactor reactor_;
  EngineMeters meters_;
  std::map<uint64_t, Connected> links_;  ///< by session; those whose Hello was taken
  std::map<NodeId, NodeReadings> readings_;
  std::map<uint64_t, Scraping> scrapes_;  ///< by the question's number
  uint64_t last_scrape_ = 0;
  NoticeSink notice_sink_;
  std::vector<Notification> notices_left_;  ///< from before, until somebody takes them
  std::set<std::string> settled_;           ///< and not yet removed for good
  /// Ids of those that are stored, or are being in this batch, by target: each has its own bound.
  std::map<std::string, std::set<std::string>> notices_waiting_;
  std::map<JobId, uint64_t> event_numbers_;  ///< last one given out
  std::map<std::string, DatasetRecord> datasets_;
  std::map<std::string, TokenRecord> tokens_;
  Admissions admissions_;
  bool closing_ = false;
  Now now_{};
  Refusals refusals_{1000};  ///< of agents, by node
  // The batch's:
  std::vector<Done> done_;
  std::map<JobId, uint64_t> new_events_;
  std::set<JobId> new_logs_;
  uint64_t last_decision_ = 0;  ///< number given out; never taken back
  Instant trim_at_{};           ///< when decisions are looked through for what is too old
  Instant remove_at_{};         ///< the same of jobs
  /// A job that goes.
  struct Removal {
    JobId job;
    std::string actor;
    std::string_view why;  ///< a constant
  };
  std::vector<Removal> removed_;  ///< in this batch
  // Up to which job, by their ends, what is too old has gone, and what was too much.
  EndedJob jobs_gone_, metrics_gone_, logs_gone_;
  /// Jobs of which something has gone that no event tells of yet.
  struct Gone {
    uint64_t jobs = 0;
    JobId last;
  };
  std::map<std::string, Gone> gone_;  ///< by "logs": why
  Instant gone_since_{};
  std::optional<Error> failed_;
  bool view_changed_ = true;  ///< since the last one was published
  bool view_urgent_ = false;  ///< so that who was answered must find it there
  Pace scheduling_{4};
  Pace viewing_{99};
  uint64_t log_version_ = 0;
  std::string trouble_;  ///< as in ClusterView
  Instant probed_{};
  bool wrote_ = false;  ///< the batch wrote to the state
  std::function<void(bool)> trouble_changed_;

  Hub events_;
  Hub log_news_;
  std::thread thread_;
};

template <typename T>
T Engine::OrFail(Result<T> result) {
  if (result) return std::move(*result);
  if (!failed_) failed_ = result.error();
  return T();
}

template <typename Asked, typename Order, typename Answered>
void Engine::PushOrRefuse(Order order, Answered done) {
  if (Full()) {
    done(Fail(ErrorCode::kResourceExhausted, "too many requests wait already; try again"));
    return;
  }
  Push(Asked{std::move(order), std::move(done)});
}

template <typename T>
void Engine::AnswerLater(std::function<void(Result<T>)> done, Result<T> answer) {
  done_.push_back([done = std::move(done), answer = std::move(answer)](const Status& status) {
    if (status) {
      done(answer);
    } else {
      done(tl::unexpected(status.error()));
    }
  });
}

}  // namespace imgd
