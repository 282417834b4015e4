#include "server/engine/engine.h"

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <set>
#include <thread>

#include "server/engine/testing/engine_fixture.h"

namespace imgd {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

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
