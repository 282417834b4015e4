#include <gmock/gmock.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>

#include "server/engine/engine.h"

namespace imgd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// An engine whose notices come to the test. Jobs fail here by coming after one that was cancelled.
struct EngineNotices : testing::Test {
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder = std::filesystem::path(testing::TempDir()) /
             fmt::format("imgd_notices_{}_{}", info->name(), ::getpid());
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    config.targets["ops"] = {};
    config.targets["mail"] = {};
    config.all = {{"ops", {NoticeEvent::kFailed}}};
    Open();
  }
  void TearDown() override {
    engine.reset();
    std::filesystem::remove_all(folder);
  }
  /// Also again, as a daemon that is restarted.
  void Open() {
    engine.reset();
    told.clear();
    auto opened = Engine::Open({.state_dir = folder, .notifications = config, .version = "test"}, &clock);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    engine = std::move(*opened);
    engine->TellBy({.add =
                        [this](Notification notice) {
                          const std::lock_guard lock(mutex);
                          told.push_back(std::move(notice));
                          changed.notify_all();
                        },
                    .dropped =
                        [this](const std::string&) {
                          const std::lock_guard lock(mutex);
                          ++dropped;
                          changed.notify_all();
                        },
                    .forget = [this](JobId job) { forgotten.push_back(job); }});
    engine->Start();
  }
  JobId Submit(const std::vector<AfterOrder>& after, std::optional<std::vector<NotifyRule>> notify = {}) {
    std::promise<Result<SubmitAnswer>> answer;
    SubmitOrder order;
    order.submission.name = "rn50";
    order.submission.owner = "ada";
    order.submission.checkpoint_parent = "/c";
    order.yaml = "name: rn50\n";
    order.after = after;
    order.notify = std::move(notify);
    engine->Submit(std::move(order),
                   [&](Result<SubmitAnswer> result) { answer.set_value(std::move(result)); });
    return answer.get_future().get().value().job;
  }
  template <typename Call>
  Status Ask(Call call) {
    std::promise<Status> answer;
    call([&](Status status) { answer.set_value(std::move(status)); });
    return answer.get_future().get();
  }
  /// A job that fails, and is told of by what it asks for.
  JobId Fail(std::optional<std::vector<NotifyRule>> notify = {}) {
    const JobId first = Submit({}, std::vector<NotifyRule>{});
    const JobId second = Submit({{fmt::format("{}", first), AfterEnd::kOk}}, std::move(notify));
    EXPECT_TRUE(Ask([&](auto done) { engine->Cancel(first, false, "ada", done); }).has_value());
    return second;
  }
  /// A run that somebody started by hand, and that fails.
  void FailByHand(const std::string& project, std::optional<std::vector<NotifyRule>> notify = {}) {
    HandStartOrder order;
    order.start = {.name = "mine", .owner = "ada", .project = project, .hosts = {"h"}, .token = "t"};
    order.yaml = "name: mine\n";
    order.idempotency_key = fmt::format("by-hand-{}", ++by_hand);
    order.notify = std::move(notify);
    std::promise<Result<HandAnswer>> started;
    engine->StartByHand(std::move(order),
                        [&](Result<HandAnswer> result) { started.set_value(std::move(result)); });
    HandReport report{.job = started.get_future().get().value().job, .token = "t", .events = {}};
    auto* event = report.events.Add();
    event->set_sequence(1);
    event->mutable_failed()->set_message("disk full");
    std::promise<Result<HandAnswer>> reported;
    engine->ReportByHand(std::move(report),
                         [&](Result<HandAnswer> result) { reported.set_value(std::move(result)); });
    EXPECT_TRUE(reported.get_future().get().has_value());
  }
  std::vector<Notification> WaitTold(size_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return told.size() + dropped >= count; });
    return told;
  }

  SystemClock clock;
  NotifyConfig config;
  int by_hand = 0;  ///< runs
  std::filesystem::path folder;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Notification> told;  ///< guarded by mutex
  size_t dropped = 0;              ///< guarded by mutex
  std::vector<JobId> forgotten;    ///< written before the call that deletes is answered
  std::unique_ptr<Engine> engine;
};

TEST_F(EngineNotices, AFailureIsToldToWhomTheOperatorSays) {
  const JobId job = Fail();
  const auto notices = WaitTold(1);
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].job, job);
  EXPECT_EQ(notices[0].target, "ops");
  EXPECT_THAT(notices[0].id, testing::StartsWith(fmt::format("{}-{}-", engine->cluster_id(), job)));
  EXPECT_THAT(notices[0].body, HasSubstr("\"job.failed\""));
}

TEST_F(EngineNotices, TheJobsOwnTargetsStandInPlaceOfThose) {
  Fail(std::vector<NotifyRule>{{"mail", {NoticeEvent::kFailed}}});
  EXPECT_EQ(WaitTold(1).front().target, "mail");
}

TEST_F(EngineNotices, OfRunsByHandTheirRulesAndTheirProjectsCountToo) {
  config.projects["vision"] = {{"mail", {NoticeEvent::kFailed}}};
  Open();
  FailByHand("");
  FailByHand("vision");
  FailByHand("vision", std::vector<NotifyRule>{{"ops", {NoticeEvent::kFailed}}});
  FailByHand("vision", std::vector<NotifyRule>{});
  std::vector<std::string> targets;
  for (const auto& notice : WaitTold(3)) targets.push_back(notice.target);
  EXPECT_THAT(targets, testing::ElementsAre("ops", "mail", "ops"));
}

TEST_F(EngineNotices, WhatWasNotSettledIsToldAgainAfterARestartUnderTheSameId) {
  Fail();
  const auto before = WaitTold(1);
  Open();
  EXPECT_EQ(WaitTold(1), before);
}

TEST_F(EngineNotices, WhatWasSettledIsNotToldAgain) {
  Fail();
  engine->OnSettled({WaitTold(1).front().id});
  Open();
  EXPECT_THAT(told, IsEmpty());
}

TEST_F(EngineNotices, BeyondTheBoundTheyAreCountedAndLeftOut) {
  config.most_pending = 1;
  Open();
  Fail();
  Fail();
  EXPECT_THAT(WaitTold(2), SizeIs(1));
  EXPECT_EQ(dropped, 1U);
  engine->OnSettled({told.front().id});
  Fail();
  WaitTold(3);
  EXPECT_EQ(dropped, 1U);
}

TEST_F(EngineNotices, ATargetThatTakesNothingDropsNoOthersNotices) {
  config.most_pending = 1;
  Open();
  const std::vector<NotifyRule> mail = {{"mail", {NoticeEvent::kFailed}}};
  Fail();
  Fail();
  Fail(mail);
  const auto notices = WaitTold(3);
  EXPECT_EQ(dropped, 1U);
  ASSERT_THAT(notices, SizeIs(2));
  EXPECT_EQ(notices[0].target, "ops");
  EXPECT_EQ(notices[1].target, "mail");
  Open();  // what is stored counts as before
  Fail();
  Fail(mail);
  WaitTold(5);
  EXPECT_EQ(dropped, 3U);
}

TEST_F(EngineNotices, ADeletedJobLeavesNone) {
  const JobId job = Fail(std::vector<NotifyRule>{{"mail", {NoticeEvent::kFailed}}});
  WaitTold(1);
  EXPECT_TRUE(Ask([&](auto done) { engine->Delete(job, "ada", done); }).has_value());
  EXPECT_THAT(forgotten, testing::ElementsAre(job)) << "what waits for its receiver is dropped at once";
  Open();
  EXPECT_THAT(told, IsEmpty());
}

}  // namespace
}  // namespace imgd
