#include "server/notify/notifier.h"

#include <gmock/gmock.h>

#include <atomic>
#include <set>

namespace imgd {
namespace {

using testing::UnorderedElementsAre;

/// The machine's steady clock, and a wall clock that the test sets.
class TestClock final : public Clock {
 public:
  Instant Now() const override { return std::chrono::steady_clock::now(); }
  WallTime Wall() const override { return {wall}; }
  std::atomic<int64_t> wall = 0;
};

/// Fails so many times, and always for what it refuses; a held one waits until it is let go or stopped.
class FakeCourier final : public Courier {
 public:
  Status Deliver(const Notification& notice, const std::stop_token& stop) override {
    const std::stop_callback wake(stop, [this] {
      const std::lock_guard lock(mutex_);
      ready_.notify_all();
    });
    std::unique_lock lock(mutex_);
    ++at_once_;
    most_at_once_ = std::max(most_at_once_, at_once_);
    begun_.push_back(notice.id);
    ready_.notify_all();
    ready_.wait(lock, [&] { return !held_ || stop.stop_requested(); });
    --at_once_;
    if (stop.stop_requested() || failures_ != 0 || refused_.contains(notice.id)) {
      if (failures_ > 0) --failures_;
      return Fail(code_, "no answer");
    }
    return {};
  }
  void FailTimes(int times, ErrorCode code = ErrorCode::kUnavailable) {
    code_ = code;
    failures_ = times;
  }
  void Refuse(std::set<std::string> ids) {
    const std::lock_guard lock(mutex_);
    refused_ = std::move(ids);
  }
  void Hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    ready_.notify_all();
  }
  std::vector<std::string> WaitBegun(size_t count) {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return begun_.size() >= count; });
    return begun_;
  }
  /// How many have begun, once one of them is held.
  size_t WaitHeld() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return held_ && at_once_ > 0; });
    return begun_.size();
  }
  int most_at_once() const { return most_at_once_; }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<std::string> begun_;
  std::set<std::string> refused_;
  bool held_ = false;
  int at_once_ = 0;
  int most_at_once_ = 0;
  std::atomic<int> failures_ = 0;
  std::atomic<ErrorCode> code_ = ErrorCode::kUnavailable;
};

struct NotifierTest : testing::Test {
  void Begin(Duration give_up_after = std::chrono::hours(1)) {
    Couriers made;
    std::vector<std::string> names = others;
    names.insert(names.end(), {"ops", "mail"});
    for (const auto& name : names) {
      auto courier = std::make_unique<FakeCourier>();
      couriers[name] = courier.get();
      made[name] = std::move(courier);
    }
    ops = couriers.at("ops");
    mail = couriers.at("mail");
    const NotifierSettings settings{.give_up_after = give_up_after,
                                    .first_rest = std::chrono::milliseconds(1)};
    notifier.emplace(std::move(made), settings, &clock, [this](const std::vector<std::string>& ids) {
      const std::lock_guard lock(mutex);
      settled.insert(ids.begin(), ids.end());
      changed.notify_all();
    });
  }
  void Add(const std::string& id, const std::string& target, int64_t created = 0) {
    notifier->Add({.id = id, .job = JobId(1), .target = target, .body = "{}", .created = {created}});
  }
  void WaitSettled(size_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return settled.size() >= count; });
  }

  TestClock clock;
  std::vector<std::string> others;  ///< targets beside these two
  std::map<std::string, FakeCourier*> couriers;
  FakeCourier* ops = nullptr;
  FakeCourier* mail = nullptr;
  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::string> settled;
  std::optional<Notifier> notifier;  // ended first
};

TEST_F(NotifierTest, DeliversWhatFailedAgain) {
  Begin();
  ops->FailTimes(2);
  Add("1", "ops");
  notifier->Start();
  WaitSettled(1);
  EXPECT_THAT(ops->WaitBegun(3), testing::ElementsAre("1", "1", "1"));
  const auto counts = notifier->Counts().at("ops");
  EXPECT_EQ(counts.sent, 1U);
  EXPECT_EQ(counts.failed_tries, 2U);
  EXPECT_EQ(counts.given_up, 0U);
  EXPECT_EQ(counts.pending, 0U);
}

TEST_F(NotifierTest, WhatIsNewGoesBeforeWhatFailed) {
  Begin();
  ops->Refuse({"bad1", "bad2"});
  ops->Hold(true);
  notifier->Start();
  for (const char* id : {"bad1", "bad2"}) Add(id, "ops");
  ops->Hold(false);
  ops->WaitBegun(3);  // both have failed
  ops->Hold(true);
  const size_t begun = ops->WaitHeld();
  for (const char* id : {"good1", "good2"}) Add(id, "ops");
  ops->Hold(false);
  WaitSettled(2);
  const auto order = ops->WaitBegun(begun + 2);
  EXPECT_EQ(order[begun], "good1") << "right after the one that was under way";
  EXPECT_EQ(order[begun + 1], "good2");
}

TEST_F(NotifierTest, WhatIsNewGoesBeforeWhatAnEarlierLifeLeft) {
  Begin();
  ops->Refuse({"old1", "old2"});
  ops->Hold(true);
  for (const char* id : {"old1", "old2"}) Add(id, "ops");
  notifier->Start();
  ASSERT_EQ(ops->WaitHeld(), 1U);
  Add("new", "ops");
  ops->Hold(false);
  WaitSettled(1);
  const auto order = ops->WaitBegun(2);
  EXPECT_EQ(order[0], "old1");
  EXPECT_EQ(order[1], "new");
}

TEST_F(NotifierTest, ATargetThatHangsHoldsUpNoOther) {
  Begin();
  ops->Hold(true);
  notifier->Start();
  Add("1", "ops");
  Add("2", "ops");
  ops->WaitBegun(1);
  Add("3", "mail");
  WaitSettled(1);
  EXPECT_THAT(settled, UnorderedElementsAre("3"));
  ops->Hold(false);
  WaitSettled(3);
  EXPECT_EQ(ops->most_at_once(), 1);
}

TEST_F(NotifierTest, HoweverManyTargetsHangTheLastOneIsServed) {
  for (int i = 0; i < 8; ++i) others.push_back(fmt::format("dead{}", i));
  Begin();
  for (const auto& name : others) {
    couriers.at(name)->Hold(true);
    Add(name, name, -1);  // older than what the other is told
  }
  notifier->Start();
  for (const auto& name : others) couriers.at(name)->WaitBegun(1);
  Add("1", "mail");
  WaitSettled(1);
  EXPECT_THAT(settled, UnorderedElementsAre("1"));
}

TEST_F(NotifierTest, WhatIsTooOldIsGivenUp) {
  Begin();
  clock.wall = int64_t{7200} * 1'000'000;
  ops->FailTimes(-1);
  Add("old", "ops", 0);
  Add("young", "ops", clock.wall);
  notifier->Start();
  WaitSettled(1);
  EXPECT_THAT(settled, UnorderedElementsAre("old"));
  notifier->Stop();
  EXPECT_EQ(notifier->Counts().at("ops").given_up, 1U);
  EXPECT_EQ(notifier->Counts().at("ops").pending, 1U);
}

TEST_F(NotifierTest, WhatCanNeverBeDeliveredIsGivenUpAtOnce) {
  Begin();
  ops->FailTimes(1, ErrorCode::kInvalidArgument);
  Add("1", "ops");
  notifier->Start();
  WaitSettled(1);
  Add("2", "ops");
  WaitSettled(2);
  EXPECT_THAT(ops->WaitBegun(2), testing::ElementsAre("1", "2"));
  const auto counts = notifier->Counts().at("ops");
  EXPECT_EQ(counts.given_up, 1U);
  EXPECT_EQ(counts.failed_tries, 0U) << "the target is not at fault";
  EXPECT_EQ(counts.sent, 1U);
}

TEST_F(NotifierTest, OfAJobThatIsGoneNothingIsDeliveredAnyMore) {
  Begin();
  ops->Hold(true);
  ops->FailTimes(-1);
  notifier->Start();
  for (const char* id : {"1", "2"}) Add(id, "ops");
  ops->WaitBegun(1);
  notifier->Add({.id = "other", .job = JobId(2), .target = "ops", .body = "{}", .created = {}});
  notifier->Drop(JobId(1));
  WaitSettled(1);
  EXPECT_THAT(settled, UnorderedElementsAre("2"));
  ops->Hold(false);
  WaitSettled(2);
  EXPECT_THAT(settled, UnorderedElementsAre("1", "2")) << "what was under way is not tried again";
  ops->FailTimes(0);
  WaitSettled(3);
  const auto begun = ops->WaitBegun(2);
  EXPECT_EQ(std::count(begun.begin(), begun.end(), "1"), 1);
  EXPECT_EQ(std::count(begun.begin(), begun.end(), "2"), 0);
}

TEST_F(NotifierTest, AnEndSettlesNothingThatWasNotDelivered) {
  Begin();
  ops->Hold(true);
  notifier->Start();
  Add("1", "ops");
  ops->WaitBegun(1);
  notifier->Stop();
  EXPECT_TRUE(settled.empty());
}

TEST_F(NotifierTest, ATargetThatThereIsNoneOfAnyMoreIsSettled) {
  Begin();
  notifier->Start();
  Add("1", "gone");
  EXPECT_THAT(settled, UnorderedElementsAre("1"));
}

}  // namespace
}  // namespace imgd
