#include "trainer/report/http_reporter.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>

#include <condition_variable>

#include "imgd/v1/report.pb.h"
#include "trainer/report/testing/post_server.h"

namespace imgd::report {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// What imgd does with reports, and misbehaves as a test says.
class HttpReporting : public testing::Test {
 protected:
  TestPostReply Answer(const TestPost& post) {
    const std::lock_guard lock(mutex_);
    posts_.push_back(post);
    changed_.notify_all();
    if (!faults_.empty()) {
      const TestPostReply fault = faults_.front();
      faults_.pop_front();
      if (!fault.cut) return fault;
      TestPostReply reply = Store(post);
      reply.cut = true;
      return reply;
    }
    return Store(post);
  }
  TestPostReply Store(const TestPost& post) {  // with mutex_ held
    if (post.path == "/api/v1/reports") {
      v1::StartReportRequest start;
      EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(post.body, &start).ok()) << post.body;
      keys_.push_back(start.idempotency_key());
      return {.body = fmt::format(R"({{"job_id": "7", "existed": {}, "sequence": "{}"}})", last_ > 0, last_)};
    }
    EXPECT_EQ(post.path, "/api/v1/reports/7/events");
    v1::ReportEventsRequest request;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(post.body, &request).ok()) << post.body;
    for (const auto& event : request.events()) {
      if (event.sequence() != last_ + 1) continue;
      ++last_;
      stored_.push_back(event);
    }
    return {.body = fmt::format(R"({{"sequence": "{}"}})", last_)};
  }
  std::unique_ptr<Reporter> Open() {
    report_.url = server_.url();
    report_.token = "imgd_secret";
    report_.name = "mine";
    report_.job_yaml = "name: mine\n";
    report_.hosts = {"here"};
    report_.gather = milliseconds(1);
    report_.first_wait = milliseconds(5);
    report_.longest_wait = milliseconds(50);
    report_.time_to_end = seconds(60);
    return MakeHttpReporter(report_, clock_, [this](const std::string& sentence) {
      const std::lock_guard lock(mutex_);
      said_.push_back(sentence);
      changed_.notify_all();
    });
  }
  template <typename Condition>
  void Await(Condition condition) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(60), condition));
  }
  std::vector<uint64_t> Steps() {
    const std::lock_guard lock(mutex_);
    std::vector<uint64_t> out;
    for (const auto& event : stored_) {
      if (event.has_step()) out.push_back(event.step().step());
    }
    return out;
  }
  std::vector<std::string> Said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }

  SystemClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TestPost> posts_;
  std::deque<TestPostReply> faults_;  ///< the next answers; `cut` ones after it was stored
  std::vector<std::string> keys_;
  std::vector<v1::TrainerEvent> stored_;
  std::vector<std::string> said_;
  uint64_t last_ = 0;
  HttpReport report_;
  PostServer server_{[this](const TestPost& post) { return Answer(post); }};
};

TEST_F(HttpReporting, TellsOfTheRunInOrderWithItsToken) {
  auto reporter = Open();
  reporter->On(Started{.world_size = 2});
  for (uint64_t step = 1; step <= 600; ++step) reporter->On(StepFigures{.step = step, .loss = 0.5});
  reporter->On(Finished{.step = 600});
  reporter->Drain(seconds(60));
  ASSERT_EQ(Steps().size(), 600u);
  EXPECT_TRUE(stored_.front().has_started());
  EXPECT_TRUE(stored_.back().has_finished());
  EXPECT_EQ(stored_.back().sequence(), 602u);
  EXPECT_THAT(posts_.front().head, HasSubstr("Authorization: Bearer imgd_secret\r\n"));
  EXPECT_THAT(Said(), ElementsAre(AllOf(HasSubstr("shows this run as job 7"), Not(HasSubstr("secret")))));
}

TEST_F(HttpReporting, WhileImgdIsAwayEventsAreKept) {
  server_.Stop();
  auto reporter = Open();
  reporter->On(Started{});
  Await([this] { return !said_.empty(); });
  for (uint64_t step = 1; step <= 10; ++step) reporter->On(StepFigures{.step = step});
  server_.Start();
  Await([this] { return stored_.size() == 11; });
  server_.Stop();
  for (uint64_t step = 11; step <= 20; ++step) reporter->On(StepFigures{.step = step});
  Await([this] { return said_.size() >= 3; });
  server_.Start();
  reporter->On(Finished{});
  reporter->Drain(seconds(60));
  EXPECT_THAT(Steps(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20));
  Await([this] { return said_.size() >= 4; });
  EXPECT_THAT(Said(),
              ElementsAre(HasSubstr("can't be told of this run"), HasSubstr("shows this run as job 7"),
                          HasSubstr("can't be told"), HasSubstr("told of this run again")));
}

TEST_F(HttpReporting, AnAnswerThatBreaksOffDoublesNothing) {
  faults_ = {{.cut = true}, {.status = 503, .headers = "Retry-After: 0\r\n"}, {.cut = true}, {.cut = true}};
  auto reporter = Open();
  reporter->On(Started{});
  for (uint64_t step = 1; step <= 5; ++step) reporter->On(StepFigures{.step = step});
  reporter->On(Finished{});
  reporter->Drain(seconds(60));
  EXPECT_THAT(Steps(), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_TRUE(stored_.back().has_finished());
  for (const auto& key : keys_) EXPECT_EQ(key, keys_.front()) << "one run, one job";
}

TEST_F(HttpReporting, ARefusedTokenIsSaidAtOnceAndEndsNothing) {
  const TestPostReply refusal{.status = 401,
                              .body = R"({"code": "UNAUTHENTICATED", "message": "no such token"})"};
  faults_.assign(10'000, refusal);
  auto reporter = Open();
  Await([this] { return !said_.empty(); });
  EXPECT_THAT(Said(), ElementsAre(AllOf(HasSubstr("refuses"), HasSubstr("no such token"),
                                        HasSubstr("training goes on"))));
  reporter->On(Finished{});
  reporter->Drain(seconds(60));  // does not wait for what cannot be
  EXPECT_THAT(Said(), Contains(HasSubstr("1 event of this run could not be sent")));
}

TEST_F(HttpReporting, WhatCouldNotBeSentIsSaidAtTheEnd) {
  server_.Stop();
  report_.time_to_fail = milliseconds(20);
  auto reporter = Open();
  reporter->On(Started{});
  reporter->On(Failed{.message = "disk full"});
  EXPECT_THAT(Said(),
              Contains(HasSubstr("3 events of this run could not be sent to imgd at http://127.0.0.1")));
}

TEST_F(HttpReporting, AFailureAndNotesAreThere) {
  auto reporter = Open();
  reporter->On(Started{});
  reporter->Note("the data are slow");
  reporter->On(Failed{.message = "first line\nsecond caf\xE9"});
  ASSERT_EQ(last_, 5u);
  EXPECT_EQ(stored_[1].note().text(), "the data are slow");
  EXPECT_EQ(stored_[2].note().text(), "imgtrain: error: first line");
  EXPECT_EQ(stored_[3].note().line_number(), 3u);
  EXPECT_EQ(stored_[4].failed().message(), "first line\nsecond caf\xEF\xBF\xBD");
}

TEST_F(HttpReporting, ASignOfLifeComesWithoutEvents) {
  report_.beat = milliseconds(10);
  auto reporter = Open();
  Await([this] { return posts_.size() >= 4; });
  EXPECT_EQ(posts_.back().body, "{}");
}

TEST_F(HttpReporting, ADaemonThatForgotTheRunIsToldAnew) {
  auto reporter = Open();
  reporter->On(StepFigures{.step = 1});
  Await([this] { return stored_.size() == 1; });
  {
    const std::lock_guard lock(mutex_);
    faults_ = {{.status = 404, .body = "{}"}};
    last_ = 0;
    stored_.clear();
  }
  reporter->On(StepFigures{.step = 2});
  Await([this] { return stored_.size() == 1; });
  EXPECT_THAT(Steps(), ElementsAre(2));
  EXPECT_EQ(keys_.size(), 2u);
}

TEST_F(HttpReporting, ADaemonThatStillHasTheRunIsToldOn) {
  auto reporter = Open();
  reporter->Note("one");
  Await([this] { return stored_.size() == 1; });
  {
    const std::lock_guard lock(mutex_);
    faults_ = {{.status = 404, .body = "{}"}};  // of a proxy
  }
  reporter->Note("two");
  Await([this] { return stored_.size() == 2; });
  EXPECT_EQ(stored_[1].note().text(), "two");
  EXPECT_EQ(stored_[1].note().line_number(), 2u);
}

TEST_F(HttpReporting, RedirectsAreNotFollowed) {
  faults_ = {{.status = 307, .body = "", .headers = "Location: /elsewhere\r\n"}};
  auto reporter = Open();
  Await([this] { return said_.size() >= 2; });
  EXPECT_THAT(Said().front(), HasSubstr("a redirect, which is not followed"));
  for (const auto& post : posts_) EXPECT_THAT(post.path, Not(HasSubstr("elsewhere")));
}

TEST_F(HttpReporting, ABodyThatImgdCannotTakeEndsNothing) {
  auto reporter = Open();
  reporter->On(StepFigures{.step = 1});
  Await([this] { return stored_.size() == 1; });
  {
    const std::lock_guard lock(mutex_);
    faults_ = {{.status = 400, .body = R"({"message": "what is this?"})"}};
  }
  reporter->On(StepFigures{.step = 2});
  Await([this] { return said_.size() >= 2; });
  reporter->On(StepFigures{.step = 3});
  reporter->On(Finished{});
  Await([this] { return !stored_.empty() && stored_.back().has_finished(); });
  EXPECT_EQ(Steps().back(), 3u);
}

TEST(ReportUrl, OnlyHttpsOrThisMachine) {
  EXPECT_EQ(CheckReportUrl("https://gpu-head:7651/").value(), "https://gpu-head:7651");
  EXPECT_EQ(CheckReportUrl("https://host/imgd/").value(), "https://host/imgd");
  for (const char* here : {"http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "http://127.1.2.3"})
    EXPECT_TRUE(CheckReportUrl(here).has_value()) << here;
  for (const char* bad : {"", "gpu-head:7651", "ftp://x", "s3://bucket/x", "https://", "https://h:0",
                          "https://h:x", "http://gpu-head:7651", "http://127.evil.example", "http://10.0.0.1",
                          "http://0.0.0.0:1", "https://me:word@host", "https://host/?token=word"}) {
    const auto checked = CheckReportUrl(bad);
    ASSERT_FALSE(checked.has_value()) << bad;
    EXPECT_EQ(checked.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(checked.error().message,
                AllOf(HasSubstr("--report"), Not(HasSubstr("word@")), Not(HasSubstr("=word"))));
  }
}

}  // namespace
}  // namespace imgd::report
