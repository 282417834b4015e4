#include "server/engine/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/files.h"
#include "common/thread_nice.h"

namespace imgd {
namespace {

constexpr size_t kMostWaiting = 4096;
constexpr size_t kMostInBatch = 1024;
/// Nodes and queued jobs together up to which everything is decided and shown with each batch.
constexpr size_t kSmallCluster = 256;
/// How far the core's thread stands before all others of the machine.
constexpr int kNice = -10;

}  // namespace

Engine::Engine(EngineSettings settings, const Clock* clock, StateStore state, MetricsStore metrics)
    : clock_(clock),
      state_dir_(settings.state_dir),
      version_(settings.version),
      cluster_id_(state.cluster_id()),
      settings_(std::move(settings)),
      quotas_(std::make_shared<const Quotas>(settings_.core.quotas)),
      state_(std::move(state)),
      metrics_(std::move(metrics)),
      log_store_(settings_.state_dir / "logs", settings_.log_kept_bytes, &metrics_),
      log_matcher_(std::make_unique<LogMatcher>(settings_.log_patterns)),
      reactor_(settings_.core, cluster_id_) {}

Result<std::unique_ptr<Engine>> Engine::Open(EngineSettings settings, const Clock* clock) {
  IMGD_ASSIGN(auto state, StateStore::Open(settings.state_dir));
  IMGD_ASSIGN(auto metrics, MetricsStore::Open(settings.state_dir));
  IMGD_TRY(MakeFolders(settings.state_dir / "logs"));
  IMGD_ASSIGN(const auto known, state.JobIds());
  RemoveLogsOfOthers(settings.state_dir / "logs", known);
  IMGD_ASSIGN(auto stored, state.Load(ClusterState::kEndedKept));
  settings.core.first_generation = stored.first_generation;
  std::unique_ptr<Engine> engine(
      new Engine(std::move(settings), clock, std::move(state), std::move(metrics)));
  const size_t jobs = stored.jobs.size();
  engine->reactor_.Restore(std::move(stored.jobs), std::move(stored.nodes), stored.next_job,
                           {clock->Now(), clock->Wall()}, std::move(stored.usage), std::move(stored.sweeps),
                           std::move(stored.accounts));
  engine->meters_.Begin(engine->reactor_.state().jobs(),
                        engine->reactor_.Accounts({clock->Now(), clock->Wall()}), clock->Wall());
  IMGD_ASSIGN(engine->notices_left_, engine->state_.LoadNotices());
  for (const auto& notice : engine->notices_left_) engine->notices_waiting_[notice.target].insert(notice.id);
  IMGD_ASSIGN(engine->last_decision_, engine->state_.LastDecision());
  engine->datasets_ = std::move(stored.datasets);
  engine->tokens_ = std::move(stored.tokens);
  engine->admissions_ = std::move(stored.admissions);
  engine->PublishView();
  spdlog::info("cluster={} jobs={} nodes={} msg=\"state loaded from {}\"", engine->cluster_id_, jobs,
               engine->reactor_.state().nodes().size(), engine->settings_.state_dir.native());
  return engine;
}

Engine::~Engine() { Stop(); }

void Engine::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Engine::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  if (thread_.joinable()) thread_.join();
  events_.Close();
  log_news_.Close();
}

bool Engine::Full() {
  const std::lock_guard lock(mutex_);
  return queue_.size() >= kMostWaiting;
}

void Engine::Push(Input input) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) {
      queue_.push_back(std::move(input));
      ready_.notify_one();
      return;
    }
  }
  const auto refusal = Fail(ErrorCode::kUnavailable, "the daemon is ending");
  std::visit(
      [&refusal](auto& refused) {
        if constexpr (requires { refused.done; }) refused.done(refusal);
        if constexpr (requires { refused.link; }) refused.link->Close(refusal.value());
      },
      input);
}

void Engine::Profile(JobId job, uint32_t rank, uint32_t steps,
                     std::function<void(Result<std::string>)> done) {
  if (Full()) {
    done(Fail(ErrorCode::kResourceExhausted, "too many requests wait already; try again"));
    return;
  }
  Push(ProfileInput{job, rank, steps, std::move(done)});
}

uint64_t Engine::NewSession() {
  const std::lock_guard lock(mutex_);
  return next_session_++;
}

void Engine::OnAgentMessage(std::shared_ptr<AgentLink> link, uint64_t session, v1::ConnectRequest message) {
  Push(AgentInput{std::move(link), session, std::move(message), clock_->Wall()});
}

void Engine::OnAgentGone(uint64_t session) { Push(GoneInput{session}); }
void Engine::CloseAgents() { Push(CloseInput{}); }

std::shared_ptr<const ClusterView> Engine::View() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

std::vector<Engine::Input> Engine::Take() {
  std::vector<Input> inputs;
  const auto take = std::min(queue_.size(), kMostInBatch);
  std::move(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(take), std::back_inserter(inputs));
  queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(take));
  return inputs;
}

void Engine::Run() {
  SetThreadNice(kNice);  // all that is asked waits for this thread, and agents are called silent by it
  Instant next_tick = clock_->Now();
  while (true) {
    std::vector<Input> inputs;
    {
      std::unique_lock lock(mutex_);
      const Instant wake = std::min(next_tick, NextPaced());
      const auto left = std::max<Duration>(wake - clock_->Now(), Duration::zero());
      ready_.wait_for(lock, left, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_ && queue_.empty()) break;
      inputs = Take();
    }
    const bool tick = clock_->Now() >= next_tick;
    now_ = {clock_->Now(), clock_->Wall()};
    view_changed_ = view_changed_ || tick;
    for (auto& input : inputs) {
      std::visit([this](auto& known) { Handle(known); }, input);
    }
    Actions actions;
    // After the inputs, so that a heartbeat that waited here counts before its node is called silent.
    if (tick) reactor_.OnTick(now_, actions);
    if (tick) TrimDecisions();
    if (tick) RemoveWhatIsOld();
    if (IsSmall()) {
      SchedulePass(actions);
    } else {
      reactor_.Settle(now_, actions);
    }
    Record(actions);
    ProbeStore();
    if (CommitBatch()) AfterCommit();
    ScheduleWhenDue();
    if (tick) {
      next_tick = clock_->Now() + settings_.tick;
      events_.Expire(now_.steady);
      log_news_.Expire(now_.steady);
      ExpireScrapes();
      if (settings_.on_tick) settings_.on_tick();
    }
  }
  EndAllScrapes();
}

bool Engine::IsSmall() const {
  return reactor_.state().nodes().size() + reactor_.state().queue().size() <= kSmallCluster;
}

Instant Engine::NextPaced() const {
  Instant next = Instant::max();
  // Nothing starts while nothing can be stored.
  if (reactor_.WantsToSchedule() && trouble_.empty()) next = std::min(next, scheduling_.next());
  if (view_changed_) next = std::min(next, viewing_.next());
  return next;
}

void Engine::ScheduleWhenDue() {
  const Instant begun = clock_->Now();
  if (!trouble_.empty() || !reactor_.WantsToSchedule() || !scheduling_.Due(begun)) return;
  Actions actions;
  SchedulePass(actions);
  // Without what follows from it, which is as much for each job however seldom plans are made: a rest for
  // that would let more jobs come together for the next one, which then rests still longer.
  scheduling_.Took(begun, clock_->Now());
  Record(actions);
  // What came meanwhile is the next batch, and is stored together with the plan.
  if (!HasInputs() && CommitBatch()) AfterCommit();
}

bool Engine::HasInputs() const {
  const std::lock_guard lock(mutex_);
  return !queue_.empty();
}

/// Without a change since the last one it is none.
void Engine::SchedulePass(Actions& actions) {
  const bool plans = reactor_.WantsToSchedule();
  const Instant begun = clock_->Now();
  reactor_.Schedule(now_, actions);
  if (plans) meters_.NoteScheduling(clock_->Now() - begun);
}

void Engine::PublishWhenDue() {
  const Instant begun = clock_->Now();
  if (!view_changed_ || !viewing_.Due(begun)) return;
  PublishView();
  viewing_.Took(begun, clock_->Now());
}

/// What accounts have had; of those that are forgotten nothing more.
void Engine::SaveUsed() {
  const ClusterState& cluster = reactor_.state();
  for (const auto& owner : cluster.TouchedUsage()) {
    const auto usage = cluster.usage().find(owner);
    if (usage != cluster.usage().end()) {
      state_.SaveUsage(owner, usage->second);
    } else {
      state_.RemoveUsage(owner);
    }
  }
  for (const auto& name : cluster.TouchedAccounts()) {
    const auto account = cluster.accounts().find(name);
    if (account != cluster.accounts().end()) {
      state_.SaveAccount(name, account->second);
    } else {
      state_.RemoveAccount(name);
    }
  }
}

void Engine::SaveJobs() {
  const ClusterState& cluster = reactor_.state();
  for (const JobId id : cluster.TouchedJobs()) {
    const JobRecord& job = *cluster.FindJob(id);
    switch (cluster.ChangeOf(id)) {
      case ClusterState::Change::kNothing:
        break;
      case ClusterState::Change::kReason:  // each job that comes into a queue where it has to wait
        state_.SaveReason(id, job.reason);
        break;
      case ClusterState::Change::kMore:
        state_.SaveJob(job);
        break;
    }
  }
}

void Engine::SaveNodes() {
  for (const NodeId& id : reactor_.state().TouchedNodes()) {
    if (const NodeRecord* node = reactor_.state().FindNode(id)) {
      state_.SaveNode(*node);
      continue;
    }
    state_.DeleteNode(id);
    readings_.erase(id);
  }
}

bool Engine::CommitBatch() {
  SaveJobs();
  SaveUsed();
  SaveNodes();
  RemoveSettled();
  SaveRemoved();
  const auto commit = [this]() -> Status {
    if (failed_) return tl::unexpected(*failed_);
    // The jobs' states come last: what they follow from is stored then, and is not stored twice if they fail.
    IMGD_TRY(log_store_.Flush());
    IMGD_TRY(metrics_.Commit());
    log_store_.Committed();
    wrote_ = state_.HasWrites();
    return state_.Commit();
  };
  const bool writes = !failed_ && (state_.HasWrites() || metrics_.HasWrites());
  const Instant begun = clock_->Now();
  const Status status = commit();
  if (status && writes) meters_.NoteCommit(clock_->Now() - begun);
  if (status) return true;
  AfterFailure(status.error());
  return false;
}

void Engine::ProbeStore() {
  constexpr auto kPeriod = std::chrono::seconds(1);
  if (trouble_.empty() || now_.steady < probed_ + kPeriod) return;
  probed_ = now_.steady;
  state_.Probe();
}

void Engine::SetTrouble(std::string trouble) {
  if (trouble.empty() != trouble_.empty()) {
    if (trouble.empty()) {
      spdlog::info("msg=\"storing works again\"");
    } else {
      spdlog::error("msg=\"{}; said once, until it works again\"", trouble);
    }
    if (trouble_changed_) trouble_changed_(!trouble.empty());
  }
  trouble_ = std::move(trouble);
  view_changed_ = view_urgent_ = true;
}

void Engine::AfterCommit() {
  // A batch without a write says nothing of whether one would succeed.
  if (!trouble_.empty() && wrote_) SetTrouble("");
  reactor_.Commit();
  if (view_urgent_ || (view_changed_ && IsSmall())) PublishView();
  for (const auto& [job, number] : new_events_) events_.Publish(job, number);
  events_.Publish(kDecisionsTopic, last_decision_);
  for (const JobId job : new_logs_) log_news_.Publish(job, ++log_version_);
  new_events_.clear();
  new_logs_.clear();
  const auto done = std::exchange(done_, {});
  for (const auto& call : done) call({});
  PublishWhenDue();
}

void Engine::AfterFailure(const Error& error) {
  SetTrouble(fmt::format(
      "imgd can't store anything, so that nothing is acknowledged and what it shows may be old: {}",
      error.message));
  probed_ = now_.steady;
  log_store_.Rollback();
  metrics_.Rollback();
  state_.Rollback();
  reactor_.Rollback();
  datasets_ = *View()->datasets;  // the view is of what is stored
  tokens_ = *View()->tokens;
  admissions_ = *View()->admissions;
  failed_.reset();
  removed_.clear();
  jobs_gone_ = metrics_gone_ = logs_gone_ = {};
  new_events_.clear();
  new_logs_.clear();
  const auto done = std::exchange(done_, {});
  const Status status = tl::unexpected(error);
  for (const auto& call : done) call(status);
  // What agents said in this batch is forgotten; each tells anew, from what it knows to be stored.
  for (const auto& [session, connected] : std::exchange(links_, {})) connected.link->Close(error);
  PublishView();
}

void Engine::PublishView() {
  auto view = std::make_shared<ClusterView>();
  view->snapshot = reactor_.MakeSnapshot(now_);
  view->queue = reactor_.state().queue();
  view->ranking = reactor_.state().ranking();
  view->nodes.reserve(reactor_.state().nodes().size());
  for (const NodeRecord* const node : reactor_.state().all_nodes()) view->nodes.push_back(*node);
  view->readings = readings_;
  view->datasets = std::make_shared<const std::map<std::string, DatasetRecord>>(datasets_);
  view->tokens = std::make_shared<const std::map<std::string, TokenRecord>>(tokens_);
  view->admissions = std::make_shared<const Admissions>(admissions_);
  view->quotas = quotas_;
  view->stale_reports = reactor_.stale_reports();
  view->trouble = trouble_;
  view_changed_ = view_urgent_ = false;
  std::shared_ptr<const ClusterView> next = std::move(view);
  const std::lock_guard lock(mutex_);
  view_.swap(next);  // the old one, if nobody has it any more, goes after the lock
}

void Engine::ListUsage(std::function<void(Result<std::vector<AccountUse>>)> done) {
  if (Full()) {
    done(Fail(ErrorCode::kResourceExhausted, "too many requests wait already; try again"));
    return;
  }
  Push(UsageInput{std::move(done)});
}

/// To the moment, with what is not stored yet: nothing is acknowledged by it.
void Engine::Handle(UsageInput& input) { input.done(reactor_.Accounts(now_)); }

void Engine::Measure(std::function<void(Result<EngineFigures>)> done) { Push(MeasureInput{std::move(done)}); }

/// As above.
void Engine::Handle(MeasureInput& input) {
  input.done(EngineFigures{.census = TakeCensus(reactor_.state()),
                           .counts = meters_.Counts(reactor_.Accounts(now_), now_.wall),
                           .stale_reports = reactor_.stale_reports(),
                           .in_trouble = !trouble_.empty(),
                           .currency = settings_.core.currency});
}

void Engine::Handle(ProfileInput& input) {
  done_.push_back([done = std::move(input.done), result = AskForProfile(input)](const Status& status) {
    if (status) {
      done(result);
    } else {
      done(tl::unexpected(status.error()));
    }
  });
}

}  // namespace imgd
