#include "agent/notice.h"

#include <gmock/gmock.h>

#include <future>

#include "agent/testing/temp_dir.h"
#include "common/remote/testing/http_server.h"

namespace imgd {
namespace {

using testing::HasSubstr;

constexpr int64_t kNoticeTime = 1'769'860'800'000'000;  // 2026-01-31T12:00:00Z

TEST(Notice, WhatEc2SaysIsActionAndTime) {
  const auto notice = ParseInstanceAction(R"({"action": "terminate", "time": "2026-01-31T12:00:00Z"})");
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->action(), "terminate");
  EXPECT_EQ(notice->at_us(), kNoticeTime);
  for (const char* other :
       {"", "no", "[]", "{}", R"({"action": "stop"})", R"({"time": "2026-01-31T12:00:00Z"})",
        R"({"action": 1, "time": 2})", R"({"action": "stop", "time": "soon"})"}) {
    const auto refused = ParseInstanceAction(other);
    ASSERT_FALSE(refused.has_value()) << other;
    EXPECT_EQ(refused.error().code, ErrorCode::kDataLoss);
  }
}

TEST(Notice, AFilesFirstLineIsTheTimeOrNobodyKnows) {
  const struct {
    const char* text;
    int64_t at_us;
  } cases[] = {
      {"2026-01-31T12:00:00Z", kNoticeTime},
      {" 2026-01-31 13:00+01:00 \nby the operator\n", kNoticeTime},
      {"", 0},
      {"TRUE\n", 0},
      {"\n2026-01-31T12:00:00Z\n", 0},
  };
  for (const auto& c : cases) EXPECT_EQ(ParseNoticeFile(c.text).at_us(), c.at_us) << c.text;
}

TEST(Notice, OnlyWhatCanBeAskedIsTaken) {
  EXPECT_FALSE(*NoticesFrom("off"));
  EXPECT_TRUE(*NoticesFrom("/run/notice"));
  EXPECT_TRUE(*NoticesFrom("http://127.0.0.1:1"));
  for (const char* other : {"", "on", "run/notice", "https://127.0.0.1", "http://", "ftp://x"}) {
    const auto refused = NoticesFrom(other);
    ASSERT_FALSE(refused.has_value()) << other;
    EXPECT_THAT(refused.error().message, HasSubstr("spot_notices: found '" + std::string(other) + "'"));
  }
}

TEST(Notice, AFileThatIsThereIsANotice) {
  const TempDir dir;
  const auto look = NoticesFrom(dir.path() / "notice").value();
  EXPECT_EQ(look({}).value(), std::nullopt);
  dir.Write("notice", "2026-01-31T12:00:00Z\n");
  ASSERT_TRUE(look({}).value().has_value());
  EXPECT_EQ(look({}).value()->at_us(), kNoticeTime);
  std::filesystem::remove(dir.path() / "notice");
  EXPECT_EQ(look({}).value(), std::nullopt) << "taken back";
}

TEST(Notice, ASpotInstanceIsLabelledSo) {
  std::string life_cycle = "spot";
  const TestHttpServer server([&life_cycle](const TestRequest& request) -> TestReply {
    if (request.target == "/latest/api/token") return {.body = "T"};
    if (request.target != "/latest/meta-data/instance-life-cycle" || life_cycle.empty())
      return {.status = 404};
    return {.body = life_cycle};
  });
  EXPECT_EQ(CapacityFrom(server.url()), "spot");
  life_cycle = "on-demand";
  EXPECT_EQ(CapacityFrom(server.url()), "on_demand");
  life_cycle.clear();
  EXPECT_EQ(CapacityFrom(server.url()), "");
  EXPECT_EQ(CapacityFrom("/run/notice"), "");
  EXPECT_EQ(CapacityFrom("off"), "");
}

TEST(Notice, AMetadataServiceIsAskedAndItsTroubleIsNoNotice) {
  std::atomic<int> status = 404;
  const TestHttpServer server([&](const TestRequest& request) -> TestReply {
    if (request.target == "/latest/api/token") return {.body = "T"};
    if (request.target != "/latest/meta-data/spot/instance-action" || status != 200)
      return {.status = status};
    return {.body = R"({"action": "stop", "time": "2026-01-31T12:00:00Z"})"};
  });
  const auto look = NoticesFrom(server.url()).value();
  EXPECT_EQ(look({}).value(), std::nullopt);
  status = 200;
  ASSERT_TRUE(look({}).value().has_value());
  EXPECT_EQ(look({}).value()->action(), "stop");
  status = 500;
  EXPECT_FALSE(look({}).has_value());
}

TEST(NoticeMonitor, TheFirstLookIsWaitedForAndATroubleTakesNothingBack) {
  v1::NodeNotice notice;
  notice.set_at_us(kNoticeTime);
  std::atomic<int> looks = 0;
  std::promise<void> second;
  const NoticeMonitor monitor(
      [&](const std::stop_token&) -> Result<std::optional<v1::NodeNotice>> {
        if (++looks == 1) return std::optional(notice);
        if (looks == 3) second.set_value();
        return Fail(ErrorCode::kUnavailable, "it is away");
      },
      std::chrono::milliseconds(1));
  ASSERT_TRUE(monitor.Latest().has_value());
  second.get_future().wait();
  ASSERT_TRUE(monitor.Latest().has_value());
  EXPECT_EQ(monitor.Latest()->at_us(), kNoticeTime);
}

TEST(NoticeMonitor, ALookThatDoesNotEndIsBrokenOff) {
  const TestHttpServer server(
      [](const TestRequest&) -> TestReply { return {.body = "T", .stall_after = 0}; });
  const NoticeMonitor monitor(NoticesFrom(server.url()).value(), std::chrono::hours(1),
                              std::chrono::milliseconds(10));
  EXPECT_EQ(monitor.Latest(), std::nullopt);
}

}  // namespace
}  // namespace imgd
