#include "server/engine/engine.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <set>
#include <thread>

#include "server/engine/read_pool.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

/// An agent in this process: keeps what it is sent, and does as it is told from its own thread.
class LocalAgent final : public AgentLink {
 public:
  void Send(v1::ConnectResponse message) override {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(message));
    ready_.notify_all();
  }
  void Close(Error why) override {
    const std::lock_guard lock(mutex_);
    closed_ = std::move(why);
    ready_.notify_all();
  }
  void Handled() override {
    const std::lock_guard lock(mutex_);
    ++handled_;
    ready_.notify_all();
  }

  /// The next message; nothing when the stream was ended.
  std::optional<v1::ConnectResponse> Next() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return !inbox_.empty() || closed_; });
    if (inbox_.empty()) return std::nullopt;
    auto message = std::move(inbox_.front());
    inbox_.pop_front();
    return message;
  }
  void WaitHandled(int count) {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return handled_ >= count || closed_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<v1::ConnectResponse> inbox_;
  std::optional<Error> closed_;
  int handled_ = 0;
};

struct EngineTest : testing::Test {
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder = std::filesystem::path(testing::TempDir()) /
             fmt::format("imgd_engine_{}_{}", info->name(), ::getpid());
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    Open();
  }
  void TearDown() override {
    pool.reset();
    engine.reset();
    std::filesystem::remove_all(folder);
  }
  void Open() { OpenWith(&clock); }
  void OpenWith(const Clock* with) {
    Load(with);
    if (!HasFatalFailure()) engine->Start();
  }
  /// What is asked of the engine before its Start() is one batch.
  void Load(const Clock* with) {
    pool.reset();
    engine.reset();
    auto opened = Engine::Open({.state_dir = folder, .version = "test"}, with);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    engine = std::move(*opened);
    auto readers = ReadPool::Start(folder, 3);
    ASSERT_TRUE(readers.has_value()) << readers.error().message;
    pool = std::move(*readers);
  }

  Result<SubmitAnswer> Submit(const std::string& key = "") {
    std::promise<Result<SubmitAnswer>> answer;
    SubmitOrder order;
    order.submission.name = "rn50";
    order.submission.owner = "ada";
    order.submission.checkpoint_parent = "/c";
    order.yaml = "name: rn50\n";
    order.idempotency_key = key;
    engine->Submit(std::move(order),
                   [&answer](Result<SubmitAnswer> result) { answer.set_value(std::move(result)); });
    return answer.get_future().get();
  }
  Status Cancel(JobId job) {
    std::promise<Status> answer;
    engine->Cancel(job, false, "ada", [&answer](Status status) { answer.set_value(std::move(status)); });
    return answer.get_future().get();
  }
  /// What a read on the pool gives.
  template <typename Work>
  auto Read(Work work) {
    std::promise<decltype(work(std::declval<Reader&>()))> answer;
    pool->Post([&](Reader& reader) { answer.set_value(work(reader)); });
    return answer.get_future().get();
  }
  JobState StateOf(JobId job) {
    return Read([job](Reader& reader) { return reader.Job(job, false).value()->job.state; });
  }
  /// Waits for the hub until the job is in a final state.
  void WaitForEnd(JobId job) {
    while (!IsFinal(StateOf(job))) {
      const uint64_t seen = engine->PublishedEvent(job);
      if (IsFinal(StateOf(job))) return;
      std::promise<void> woken;
      const auto token = engine->events().Wait(job, seen, clock.Now() + std::chrono::seconds(1),
                                               [&woken] { woken.set_value(); });
      if (token) woken.get_future().get();
    }
  }

  SystemClock clock;
  std::filesystem::path folder;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<ReadPool> pool;
};

v1::ConnectRequest Hello(const std::string& node) {
  v1::ConnectRequest request;
  request.mutable_hello()->set_node(node);
  request.mutable_hello()->set_agent_id("id-" + node);
  request.mutable_hello()->add_devices();
  return request;
}

v1::ConnectRequest StatusOf(const v1::RunId& run, v1::RunPhase phase, bool ended) {
  v1::ConnectRequest request;
  *request.mutable_run_status()->mutable_run() = run;
  request.mutable_run_status()->set_phase(phase);
  if (ended) request.mutable_run_status()->add_exits();
  return request;
}

v1::ConnectRequest LineOf(const v1::RunId& run, uint64_t number, const std::string& text) {
  v1::ConnectRequest request;
  *request.mutable_log_lines()->mutable_run() = run;
  auto* line = request.mutable_log_lines()->add_lines();
  line->set_line_number(number);
  line->set_text(text);
  return request;
}

/// Trains every job that it is given to the end, until its stream is ended.
void Serve(Engine& engine, const std::string& node) {
  auto link = std::make_shared<LocalAgent>();
  const uint64_t session = engine.NewSession();
  int sent = 0;
  const auto say = [&](v1::ConnectRequest request) {
    engine.OnAgentMessage(link, session, std::move(request));
    link->WaitHandled(++sent);
  };
  say(Hello(node));
  while (const auto message = link->Next()) {
    if (message->has_prepare_run()) {
      v1::ConnectRequest prepared;
      *prepared.mutable_run_prepared()->mutable_run() = message->prepare_run().run();
      prepared.mutable_run_prepared()->set_port(1);
      say(std::move(prepared));
    } else if (message->has_start_run()) {
      const auto run = message->start_run().run();
      say(StatusOf(run, v1::RUN_PHASE_RUNNING, false));
      v1::ConnectRequest events;
      *events.mutable_trainer_events()->mutable_run() = run;
      for (uint64_t i = 1; i <= 10; ++i) {
        auto* event = events.mutable_trainer_events()->add_events();
        event->set_sequence(i);
        if (i == 1) event->mutable_started();
        if (i > 1 && i < 10) event->mutable_step()->set_step(i);
        if (i == 10) event->mutable_finished();
      }
      say(std::move(events));
      say(LineOf(run, 1, "done"));
      say(StatusOf(run, v1::RUN_PHASE_GONE, true));
    }
  }
  engine.OnAgentGone(session);
}

TEST_F(EngineTest, WhatManyThreadsSubmitIsStoredOnceEach) {
  constexpr int kThreads = 8;
  constexpr int kEach = 25;
  std::deque<std::thread> threads;
  std::mutex mutex;
  std::set<JobId> ids;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        const auto answer = Submit();
        const std::lock_guard lock(mutex);
        ids.insert(answer.value().job);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(ids, SizeIs(kThreads * kEach));
  Open();
  const auto stored = Read([](Reader& reader) { return reader.Jobs({.most = 1000}).value(); });
  EXPECT_THAT(stored, SizeIs(kThreads * kEach));
}

TEST_F(EngineTest, OneKeyMakesOneJobHoweverManyAskAtOnce) {
  std::deque<std::thread> threads;
  std::mutex mutex;
  std::set<JobId> ids;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      const auto answer = Submit("the-key");
      const std::lock_guard lock(mutex);
      ids.insert(answer.value().job);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(ids, SizeIs(1));
}

TEST_F(EngineTest, AgentsTrainWhatManySubmitAndWatchersSeeItsEnd) {
  std::deque<std::thread> agents;
  for (const char* node : {"a", "b", "c"}) agents.emplace_back([this, node] { Serve(*engine, node); });
  std::deque<std::thread> users;
  for (int i = 0; i < 12; ++i) {
    users.emplace_back([&] {
      const JobId job = Submit().value().job;
      WaitForEnd(job);
      EXPECT_EQ(StateOf(job), JobState::kCompleted);
      const auto events = Read(
          [&](Reader& reader) { return reader.Events(job, 0, engine->PublishedEvent(job), 1000).value(); });
      uint64_t steps = 0;
      for (const auto& event : events) steps += event.kind == EventKind::kStep ? 1 : 0;
      EXPECT_EQ(steps, 8u);
      EXPECT_NE(engine->View(), nullptr);
    });
  }
  for (auto& user : users) user.join();
  engine->CloseAgents();
  for (auto& agent : agents) agent.join();
}

TEST_F(EngineTest, WhatComesWhileItEndsIsRefusedAndNothingHangs) {
  std::atomic<int> refused = 0;
  std::deque<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      while (true) {
        const auto answer = Submit();
        if (answer) continue;
        EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
        ++refused;
        return;
      }
    });
  }
  engine->Stop();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(refused, 4);
}

TEST_F(EngineTest, AJobThatEndedLongAgoIsStillKnownToCancel) {
  const JobId first = Submit().value().job;
  ASSERT_TRUE(Cancel(first).has_value());
  for (size_t i = 0; i < ClusterState::kEndedKept + 1; ++i)
    ASSERT_TRUE(Cancel(Submit().value().job).has_value());
  EXPECT_TRUE(Cancel(first).has_value());
  EXPECT_EQ(Cancel(JobId(100'000)).error().code, ErrorCode::kNotFound);
}

TEST_F(EngineTest, ANewJobIsAnsweredWithItsRecordAndAKnownOneWithItsNumber) {
  const auto first = Submit("key").value();
  ASSERT_TRUE(first.record.has_value());
  EXPECT_EQ(first.record->id, first.job);
  EXPECT_EQ(first.record->state, JobState::kQueued);
  EXPECT_EQ(first.record->reason.code, ReasonCode::kNoNodes);
  EXPECT_EQ(first.last_event, engine->PublishedEvent(first.job));
  EXPECT_THAT(Read([&](Reader& reader) { return reader.History(first.job).value(); }),
              SizeIs(first.last_event));
  const auto again = Submit("key").value();
  EXPECT_EQ(again.job, first.job);
  EXPECT_FALSE(again.record.has_value());
}

TEST_F(EngineTest, OfLinesThatComeWithTheirJobsDeletionNothingIsLeft) {
  std::thread agent([this] { Serve(*engine, "a"); });
  const JobId job = Submit().value().job;
  WaitForEnd(job);
  engine->CloseAgents();
  agent.join();
  Load(&clock);
  const auto link = std::make_shared<LocalAgent>();
  const uint64_t session = engine->NewSession();
  engine->OnAgentMessage(link, session, Hello("a"));
  v1::RunId run;
  run.set_job_id(job.value());
  run.set_generation(1);
  engine->OnAgentMessage(link, session, LineOf(run, 2, "late"));
  std::promise<Status> deleted;
  engine->Delete(job, "ada", [&deleted](Status status) { deleted.set_value(std::move(status)); });
  engine->Start();
  ASSERT_TRUE(deleted.get_future().get().has_value());
  EXPECT_THAT(Read([](Reader& reader) { return reader.LogSizes(1).value(); }), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(folder / "logs" / std::to_string(job.value())));
}

/// The machine's clocks, with a time of day that a test may put back.
struct TurnedBackClock final : Clock {
  Instant Now() const override { return SystemClock().Now(); }
  WallTime Wall() const override { return {SystemClock().Wall().micros - back_micros}; }
  std::atomic<int64_t> back_micros = 0;
};

struct FigureLimitTest : EngineTest {
  void SetUp() override {
    EngineTest::SetUp();
    OpenWith(&turned_back);
  }
  uint64_t FigureBytes(JobId job) {
    return Read([job](Reader& reader) { return reader.FigureBytes(job).value(); });
  }
  /// Has the engine look for figures that are too much until none of the job's are left.
  void AwaitNoFigures(JobId job) {
    for (int i = 0; i < 600 && FigureBytes(job) > 0; ++i) {
      std::promise<Status> answer;
      engine->ChangeSettings({.settings = {.metrics_total_bytes = 1}, .actor = "ada", .text = ""},
                             [&answer](Status status) { answer.set_value(std::move(status)); });
      ASSERT_TRUE(answer.get_future().get().has_value());
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    EXPECT_EQ(FigureBytes(job), 0u);
  }

  TurnedBackClock turned_back;
};

TEST_F(FigureLimitTest, FiguresOfAJobThatEndsAfterTheClockWasPutBackGoToo) {
  std::thread agent([this] { Serve(*engine, "a"); });
  const JobId before = Submit().value().job;
  WaitForEnd(before);
  EXPECT_GT(FigureBytes(before), 0u);
  AwaitNoFigures(before);
  turned_back.back_micros = 3'600'000'000;
  const JobId after = Submit().value().job;
  WaitForEnd(after);
  AwaitNoFigures(after);
  engine->CloseAgents();
  agent.join();
}

/// Stands still until a test has time pass.
struct HeldClock final : Clock {
  Instant Now() const override {
    return Instant(std::chrono::hours(1)) + std::chrono::milliseconds(passed_ms.load());
  }
  WallTime Wall() const override { return {1'700'000'000'000'000 + 1000 * (passed_ms - back_ms)}; }
  std::atomic<int64_t> passed_ms = 0;
  std::atomic<int64_t> back_ms = 0;  ///< that it was put back
};

struct LateReportsTest : EngineTest {
  void SetUp() override {
    EngineTest::SetUp();
    OpenWith(&held_clock);
    session = engine->NewSession();
    Say(Hello("a"));
  }
  void Say(v1::ConnectRequest request) {
    engine->OnAgentMessage(link, session, std::move(request));
    link->WaitHandled(++said);
  }
  /// A job's rank begins on node a.
  v1::RunId Begin() {
    EXPECT_TRUE(Submit().has_value());
    auto prepare = link->Next();
    while (prepare && !prepare->has_prepare_run()) prepare = link->Next();
    const v1::RunId run = prepare->prepare_run().run();
    v1::ConnectRequest prepared;
    *prepared.mutable_run_prepared()->mutable_run() = run;
    prepared.mutable_run_prepared()->set_port(1);
    Say(std::move(prepared));
    Say(StatusOf(run, v1::RUN_PHASE_RUNNING, false));
    v1::TrainerEvent started;
    started.mutable_started();
    Reports(run, 1, std::move(started));
    return run;
  }
  void Reports(const v1::RunId& run, uint64_t sequence, v1::TrainerEvent event) {
    event.set_sequence(sequence);
    v1::ConnectRequest request;
    *request.mutable_trainer_events()->mutable_run() = run;
    *request.mutable_trainer_events()->add_events() = std::move(event);
    Say(std::move(request));
  }

  HeldClock held_clock;
  std::shared_ptr<LocalAgent> link = std::make_shared<LocalAgent>();
  uint64_t session = 0;
  int said = 0;
};

TEST_F(LateReportsTest, ARunThatIsOverIsJudgedOnceAllThatItsRanksWroteHasCome) {
  const v1::RunId run = Begin();
  const JobId job(run.job_id());
  v1::TrainerEvent event;
  Say(StatusOf(run, v1::RUN_PHASE_GONE, true));
  for (uint64_t i = 2; i <= 4; ++i) {
    held_clock.passed_ms += 1500;
    Say(LineOf(run, i - 1, "much was written"));
    held_clock.passed_ms += 1500;
    event.mutable_step()->set_step(i);
    Reports(run, i, event);
  }
  EXPECT_EQ(StateOf(job), JobState::kRunning);
  event.mutable_finished();
  Reports(run, 5, event);
  EXPECT_EQ(StateOf(job), JobState::kCompleted);
}

TEST_F(LateReportsTest, HowLongItStillTakesCountsFromWhenItsRankSaidSo) {
  const v1::RunId run = Begin();
  const JobId job(run.job_id());
  v1::TrainerEvent event;
  event.set_time_us(held_clock.Wall().micros);
  event.mutable_step()->set_step(1);
  event.mutable_step()->set_eta_seconds(55 * 60);
  held_clock.passed_ms += 50 * 60 * 1000;
  Reports(run, 2, event);
  const auto ends = [&] {
    EXPECT_TRUE(Submit().has_value());  // what is decided next shows it
    return engine->View()->snapshot.ends.at(job) - held_clock.Now();
  };
  EXPECT_EQ(ends(), std::chrono::minutes(5));
  event.set_time_us(held_clock.Wall().micros + 1'000'000);
  Reports(run, 3, event);
  EXPECT_EQ(ends(), std::chrono::minutes(55)) << "its node's clock is a second ahead";
  // One that is an hour behind does not make its reports old.
  const int64_t behind = held_clock.Wall().micros - 3600LL * 1'000'000;
  v1::ConnectRequest beat;
  beat.mutable_heartbeat()->set_time_us(behind);
  Say(std::move(beat));
  event.set_time_us(behind);
  Reports(run, 4, event);
  EXPECT_EQ(ends(), std::chrono::minutes(55));
}

/// A job that trained a step and wrote a line has ended.
struct WhatGoes : LateReportsTest {
  void SetUp() override {
    LateReportsTest::SetUp();
    run = Begin();
    Finish(run);
  }
  void Finish(const v1::RunId& started) {
    Say(LineOf(started, 1, "done"));
    v1::TrainerEvent event;
    event.mutable_step()->set_step(1);
    Reports(started, 2, event);
    event.mutable_finished();
    Reports(started, 3, event);
    Say(StatusOf(started, v1::RUN_PHASE_GONE, true));
    ASSERT_EQ(StateOf(JobId(started.job_id())), JobState::kCompleted);
  }
  /// After that time the engine looks once at what is to go.
  void LooksAfter(std::chrono::milliseconds time, const EngineSettings& settings) {
    Use(settings);
    held_clock.passed_ms += time.count();
    Use(settings);
  }
  void Use(const EngineSettings& settings) {
    std::promise<Status> answer;
    engine->ChangeSettings({.settings = settings, .actor = "ada", .text = ""},
                           [&answer](Status status) { answer.set_value(std::move(status)); });
    ASSERT_TRUE(answer.get_future().get().has_value());
  }
  /// Of the lines that were said, by number.
  std::vector<uint64_t> Acks(size_t count) {
    std::vector<uint64_t> numbers;
    while (numbers.size() < count) {
      const auto message = link->Next();
      if (!message) break;
      if (message->has_logs_ack()) numbers.push_back(message->logs_ack().line_number());
    }
    return numbers;
  }
  std::map<JobId, uint64_t> LogSizes() {
    return Read([](Reader& reader) { return reader.LogSizes(1).value(); });
  }

  v1::RunId run;
};

TEST_F(WhatGoes, LinesThatComeLateGoToo) {
  const EngineSettings settings{.logs_kept_for = std::chrono::hours(24)};
  EXPECT_THAT(LogSizes(), SizeIs(1));
  LooksAfter(std::chrono::hours(48), settings);
  EXPECT_THAT(LogSizes(), IsEmpty());
  Say(LineOf(run, 2, "late"));
  EXPECT_THAT(LogSizes(), SizeIs(1));
  LooksAfter(std::chrono::minutes(2), settings);
  EXPECT_THAT(LogSizes(), IsEmpty());
  Say(LineOf(run, 3, "later"));
  EXPECT_THAT(Acks(3), ElementsAre(1, 2, 3)) << "its sender would wait";
  EXPECT_THAT(LogSizes(), SizeIs(1));
}

TEST_F(WhatGoes, LogsOfAJobThatEndsAfterTheClockWasPutBackALittleGoToo) {
  const EngineSettings settings{.logs_total_bytes = 1};
  LooksAfter(std::chrono::seconds(1), settings);
  LooksAfter(std::chrono::seconds(1), settings);
  EXPECT_THAT(LogSizes(), IsEmpty());
  v1::ConnectRequest beat;
  beat.mutable_heartbeat();
  Say(beat);  // it looks once more in a minute
  held_clock.back_ms = 40'000;
  held_clock.passed_ms += 10'000;
  Finish(Begin());
  EXPECT_THAT(LogSizes(), SizeIs(1));
  LooksAfter(std::chrono::minutes(2), settings);
  EXPECT_THAT(LogSizes(), IsEmpty());
}

TEST_F(WhatGoes, LogsThatAreTooMuchDoNotWaitForFigures) {
  LooksAfter(std::chrono::minutes(2), {.logs_total_bytes = 1, .metrics_total_bytes = 1});
  EXPECT_EQ(Read([this](Reader& reader) { return reader.FigureBytes(JobId(run.job_id())).value(); }), 0u);
  EXPECT_THAT(LogSizes(), IsEmpty());
}

/// Each look at it takes a moment, so that what the engine does seems to take as long as in a cluster of
/// thousands.
class SlowClock final : public Clock {
 public:
  Instant Now() const override {
    return Instant(std::chrono::hours(1)) + std::chrono::milliseconds(10 * ++looks_);
  }
  WallTime Wall() const override { return {1'700'000'000'000'000}; }

 private:
  mutable std::atomic<int64_t> looks_ = 0;
};

struct LargeClusterTest : EngineTest {
  void SetUp() override {
    EngineTest::SetUp();
    OpenWith(&slow_clock);
    for (int i = 0; i < kManyJobs; ++i) ASSERT_TRUE(Submit().has_value());
  }

  static constexpr int kManyJobs = 300;
  SlowClock slow_clock;
};

TEST_F(LargeClusterTest, ChangesThatComeQuicklyShareAViewAndAllAreShown) {
  std::set<std::shared_ptr<const ClusterView>> views;
  constexpr int kMore = 100;
  for (int i = 0; i < kMore; ++i) {
    ASSERT_TRUE(Submit().has_value());
    views.insert(engine->View());
  }
  EXPECT_LT(views.size(), kMore);
  while (engine->View()->queue.size() != kManyJobs + kMore) std::this_thread::yield();
  while (engine->View()->queue.back().code != ReasonCode::kNoNodes) std::this_thread::yield();
}

TEST_F(LargeClusterTest, AnAgentThatJoinsGetsTheFirstJob) {
  auto link = std::make_shared<LocalAgent>();
  engine->OnAgentMessage(link, engine->NewSession(), Hello("a"));
  EXPECT_TRUE(link->Next()->has_welcome());
  const auto next = link->Next();
  ASSERT_TRUE(next.has_value() && next->has_prepare_run());
  EXPECT_EQ(next->prepare_run().run().job_id(), 1u);
}

TEST_F(LargeClusterTest, ATokenCountsFromItsAnswerOn) {
  for (int i = 0; i < 20; ++i) {
    const std::string name = fmt::format("token-{}", i);
    std::promise<void> answered;
    engine->ChangeToken({.record = {.name = name, .hash = name, .owner = "ada", .scopes = {"report"}}},
                        [&](const Result<TokenRecord>&) { answered.set_value(); });
    answered.get_future().get();
    EXPECT_TRUE(engine->View()->tokens->contains(name));
  }
}

TEST(Pace, RestsForAMultipleOfWhatTheWorkTook) {
  using std::chrono::milliseconds;
  const Instant start(std::chrono::hours(1));
  Pace pace(9);
  EXPECT_TRUE(pace.Due(start)) << "the first is due at once";
  pace.Took(start, start + milliseconds(5));
  EXPECT_EQ(pace.next(), start + milliseconds(5) + 9 * std::chrono::microseconds(7'500));
  EXPECT_FALSE(pace.Due(pace.next() - Duration(1)));
  EXPECT_TRUE(pace.Due(pace.next()));
  pace.Took(start, start + milliseconds(10));
  EXPECT_EQ(pace.next(), start + milliseconds(10) + 2 * 9 * milliseconds(10))
      << "what is long rests twice as long";
  pace.Took(start, start + std::chrono::minutes(1));
  EXPECT_EQ(pace.next(), start + std::chrono::minutes(1) + std::chrono::seconds(2));
}

TEST(Hub, WakesThoseWhoWaitOnceAndOnlyForNews) {
  Hub hub;
  int woken = 0;
  const Instant never = Instant::max();
  hub.Publish(JobId(1), 5);
  EXPECT_EQ(hub.Wait(JobId(1), 4, never, [&] { ++woken; }), std::nullopt) << "there is news already";
  ASSERT_TRUE(hub.Wait(JobId(1), 5, never, [&] { ++woken; }));
  hub.Publish(JobId(1), 5);
  hub.Publish(JobId(2), 9);
  EXPECT_EQ(woken, 0);
  hub.Publish(JobId(1), 6);
  hub.Publish(JobId(1), 7);
  EXPECT_EQ(woken, 1);
}

TEST(Hub, WaitsEndByCancelDeadlineAndClose) {
  Hub hub;
  std::vector<std::string> woken;
  const Instant start(std::chrono::hours(1));
  const auto wait = [&](const std::string& name, Instant deadline) {
    return hub.Wait(JobId(1), 0, deadline, [&woken, name] { woken.push_back(name); });
  };
  const auto cancelled = wait("cancelled", start);
  wait("early", start + std::chrono::seconds(1));
  wait("late", start + std::chrono::seconds(9));
  EXPECT_TRUE(hub.Cancel(*cancelled));
  EXPECT_FALSE(hub.Cancel(*cancelled));
  hub.Expire(start + std::chrono::seconds(1));
  EXPECT_THAT(woken, ElementsAre("early"));
  hub.Close();
  EXPECT_THAT(woken, ElementsAre("early", "late"));
  EXPECT_EQ(wait("after", start), std::nullopt);
}

TEST_F(EngineTest, WhatTakesLongIsReadOneAfterTheOtherBesideTheRest) {
  std::promise<void> first_may_end, first_runs, second_ran, quick_ran;
  ASSERT_TRUE(pool->TryPostSlow(ReadPool::Lane::kWork, [&](Reader&) {
    first_runs.set_value();
    first_may_end.get_future().wait();
  }));
  first_runs.get_future().wait();
  std::atomic<bool> second = false;
  ASSERT_TRUE(pool->TryPostSlow(ReadPool::Lane::kWork, [&](Reader&) {
    second = true;
    second_ran.set_value();
  }));
  pool->Post([&](Reader&) { quick_ran.set_value(); });
  quick_ran.get_future().wait();
  EXPECT_FALSE(second);
  first_may_end.set_value();
  second_ran.get_future().wait();
}

TEST_F(EngineTest, AFolderThatHangsHoldsUpNoSearch) {
  std::promise<void> folder_may_answer, folder_is_asked, folder_answered, search_ran, quick_ran;
  ASSERT_TRUE(pool->TryPostSlow(ReadPool::Lane::kFolders, [&](Reader&) {
    folder_is_asked.set_value();
    folder_may_answer.get_future().wait();
    folder_answered.set_value();
  }));
  folder_is_asked.get_future().wait();
  ASSERT_TRUE(pool->TryPostSlow(ReadPool::Lane::kWork, [&](Reader&) { search_ran.set_value(); }));
  pool->Post([&](Reader&) { quick_ran.set_value(); });
  search_ran.get_future().wait();
  quick_ran.get_future().wait();
  folder_may_answer.set_value();
  folder_answered.get_future().wait();
}

}  // namespace
}  // namespace imgd
