// What comes late, and what goes by its age and size.
#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <map>
#include <vector>

#include "server/engine/testing/engine_fixture.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

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

}  // namespace
}  // namespace imgd
