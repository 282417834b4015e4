#include "server/rpc/log_page.h"
#include "server/rpc/log_places.h"
#include "server/rpc/testing/rpc_fixture.h"
#include "server/store/metrics_store.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct LogPages : RpcTest {
  v1::ListLogsResponse List(const v1::ListLogsRequest& request) {
    v1::ListLogsResponse response;
    const auto status = TryList(request, response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  grpc::Status TryList(const v1::ListLogsRequest& request, v1::ListLogsResponse& response) {
    Context context;
    return jobs->ListLogs(&context, request, &response);
  }
  static std::vector<std::string> Texts(const v1::ListLogsResponse& page) {
    std::vector<std::string> out;
    for (const auto& line : page.lines())
      out.push_back(fmt::format("{}.{} {}", line.generation(), line.line_number(), line.text()));
    return out;
  }
  static v1::ListLogsRequest Of(uint64_t id, uint32_t tail = 0) {
    v1::ListLogsRequest request;
    request.set_id(id);
    request.set_rank(0);
    request.set_tail(tail);
    return request;
  }
  /// 600 lines, some 5 MB.
  static void WriteMuch(FakeAgent& agent, const v1::RunId& run) {
    for (uint64_t n = 1; n <= 600; n += 50) {
      std::vector<std::string> lines;
      for (uint64_t i = n; i < n + 50; ++i) lines.push_back(fmt::format("{} {}", i, std::string(9000, 'x')));
      ASSERT_EQ(agent.Lines(run, 0, n, lines), n + 49);
    }
  }
  /// The run fails, and the job starts again.
  v1::RunId StartAgain(FakeAgent& agent, const v1::RunId& run) {
    agent.Phase(run, v1::RUN_PHASE_GONE, {MakeExit(0, 0, 9)});
    EXPECT_TRUE(agent.NextCommand()->has_forget_run());
    return BringUp(agent);
  }
};

TEST_F(LogPages, FollowingGoesOnIntoTheNextStart) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t id = Submit(kJob);
  const v1::RunId first = BringUp(agent);
  agent.Lines(first, 0, 1, {"one", "two", "three"});
  auto request = Of(id);
  auto page = List(request);
  EXPECT_THAT(Texts(page), ElementsAre("1.1 one", "1.2 two", "1.3 three"));
  request.set_after(page.next());
  EXPECT_THAT(Texts(List(request)), IsEmpty());
  agent.Lines(first, 0, 4, {"four"});
  const v1::RunId second = StartAgain(agent, first);
  agent.Lines(second, 0, 1, {"again", "and on"});
  // Its numbers are below those that were read of the first start.
  page = List(request);
  EXPECT_THAT(Texts(page), ElementsAre("1.4 four", "2.1 again", "2.2 and on"));
  EXPECT_EQ(page.generation(), 2u);
  request.set_after(page.next());
  EXPECT_THAT(Texts(List(request)), IsEmpty());
  request.set_after("1-0.3");
  request.set_generation(1);
  EXPECT_THAT(Texts(List(request)), ElementsAre("1.4 four")) << "only that start was asked for";
}

TEST_F(LogPages, FollowingStaysWithAStartUntilALaterOneHasWrittenSomething) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t id = Submit(kJob);
  const v1::RunId first = BringUp(agent);
  agent.Lines(first, 0, 1, {"one", "two"});
  const v1::RunId third = StartAgain(agent, StartAgain(agent, first));
  auto request = Of(id);
  request.set_after("1-0.1");
  auto page = List(request);
  EXPECT_THAT(Texts(page), ElementsAre("1.2 two"));
  EXPECT_EQ(page.next(), "1-0.2");
  agent.Lines(third, 0, 1, {"again"});
  request.set_after(page.next());
  page = List(request);
  EXPECT_THAT(Texts(page), ElementsAre("3.1 again"));
  EXPECT_EQ(page.next(), "3-0.1");
}

TEST_F(LogPages, AFollowerSeesEveryStartHoweverSlowlyItReads) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t id = Submit(kJob);
  const v1::RunId first = BringUp(agent);
  WriteMuch(agent, first);
  v1::ReadLogsRequest request;
  request.set_id(id);
  request.set_follow(true);
  Context context;
  auto stream = jobs->ReadLogs(&context, request);
  v1::ReadLogsResponse response;
  ASSERT_TRUE(stream->Read(&response));
  // The second start comes and goes while most of the first one's lines are not sent yet.
  const v1::RunId second = StartAgain(agent, first);
  agent.Lines(second, 0, 1, {"second"});
  const v1::RunId third = StartAgain(agent, second);
  agent.Lines(third, 0, 1, {"third"});
  std::vector<std::string> later;
  while ((later.empty() || later.back() != "3 third") && stream->Read(&response)) {
    for (const auto& line : response.lines()) {
      if (line.generation() > 1) later.push_back(fmt::format("{} {}", line.generation(), line.text()));
    }
  }
  EXPECT_THAT(later, ElementsAre("2 second", "3 third"));
  context.TryCancel();
  while (stream->Read(&response)) {
  }
  (void)stream->Finish();
}

TEST_F(LogPages, LinesThatARestoreDidNotFindKeepNobodyFromTheNextStart) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t id = Submit(kJob);
  const v1::RunId first = BringUp(agent);
  agent.Lines(first, 0, 1, {"one", "two", "three"});
  const v1::RunId second = StartAgain(agent, first);
  agent.Lines(second, 0, 1, {"again"});
  daemon.reset();
  std::filesystem::remove_all(folder / "logs" / std::to_string(id) / "1");
  {
    auto metrics = MetricsStore::Open(folder);
    ASSERT_TRUE(metrics.has_value());
    metrics->SaveLogPosition({{JobId(id), Generation(1)}, 0}, {.last_line = 3, .segment = 1});
    ASSERT_TRUE(metrics->Commit());
  }
  StartDaemon();
  auto request = Of(id);
  request.set_after("1-0.1");
  const auto page = List(request);
  EXPECT_THAT(Texts(page), ElementsAre("2.1 again"));
  EXPECT_FALSE(page.truncated());
  EXPECT_EQ(page.next(), "2-0.1");
}

TEST_F(LogPages, LinesOfARankKeepTheirOrderWhereItsClockWasPutBack) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t id = Submit(kJob);
  const v1::RunId run = BringUp(agent);
  agent.Lines(run, 0, 1, {"one", "two"}, 5'000'000);
  agent.Lines(run, 0, 3, {"three", "four"});
  EXPECT_THAT(Texts(List(Of(id))), ElementsAre("1.1 one", "1.2 two", "1.3 three", "1.4 four"));
  v1::ReadLogsRequest request;
  request.set_id(id);
  EXPECT_THAT(Logs(request), ElementsAre("0: one", "0: two", "0: three", "0: four"));
}

TEST(SortByTime, MixesRanksAndKeepsTheOrderOfEach) {
  google::protobuf::RepeatedPtrField<v1::LogLine> lines;
  const auto add = [&lines](uint64_t start, uint32_t rank, uint64_t number, int64_t time_us) {
    *lines.Add() = ToProto({.number = number, .time_us = time_us}, rank, Generation(start));
  };
  add(1, 0, 1, 100);
  add(1, 0, 2, 40);
  add(1, 0, 3, 50);
  add(1, 0, 4, 200);
  add(1, 1, 1, 60);
  add(1, 1, 2, 150);
  add(2, 0, 1, 10);
  SortByTime(lines);
  std::vector<std::string> order;
  for (const auto& line : lines)
    order.push_back(fmt::format("{}.{}.{}", line.generation(), line.rank(), line.line_number()));
  EXPECT_THAT(order, ElementsAre("1.1.1", "1.0.1", "1.0.2", "1.0.3", "1.1.2", "1.0.4", "2.0.1"));
}

TEST_F(LogPages, TheNewestStayWhereAnAnswerIsTooLarge) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t id = Submit(kJob);
  const v1::RunId run = BringUp(agent);
  WriteMuch(agent, run);
  auto request = Of(id, 600);
  auto page = List(request);
  EXPECT_TRUE(page.truncated());
  EXPECT_LT(page.lines_size(), 500);
  EXPECT_EQ(page.lines(page.lines_size() - 1).line_number(), 600u);
  const uint64_t first = page.lines(0).line_number();
  request.set_before(page.previous());
  page = List(request);
  EXPECT_EQ(page.lines(page.lines_size() - 1).line_number(), first - 1);
  EXPECT_EQ(page.lines(0).line_number(), 1u);
  EXPECT_EQ(page.previous(), "");
  // What follows on a place comes without a gap, in as many answers as it takes.
  request.clear_before();
  request.set_after("1-0.0");
  uint64_t last = 0;
  for (bool more = true; more; request.set_after(page.next())) {
    page = List(request);
    for (const auto& line : page.lines()) EXPECT_EQ(line.line_number(), ++last);
    more = page.truncated();
  }
  EXPECT_EQ(last, 600u);
}

TEST_F(LogPages, LinesAroundOneAndLinesLikeAWord) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t id = Submit(kJob);
  const v1::RunId run = BringUp(agent);
  std::vector<std::string> lines;
  for (int i = 1; i <= 40; ++i) lines.push_back(i % 10 == 3 ? "[warning] slow Shard" : "[info] step");
  agent.Lines(run, 0, 1, lines);
  auto request = Of(id, 3);
  request.set_before_line(21);
  auto page = List(request);
  EXPECT_THAT(Texts(page), ElementsAre("1.18 [info] step", "1.19 [info] step", "1.20 [info] step"));
  EXPECT_EQ(page.next(), "1-0.20");
  request = Of(id, 2);
  request.set_contains("shard");
  page = List(request);
  EXPECT_THAT(Texts(page), ElementsAre("1.23 [warning] slow Shard", "1.33 [warning] slow Shard"));
  request.set_before(page.previous());
  EXPECT_THAT(Texts(List(request)), ElementsAre("1.3 [warning] slow Shard", "1.13 [warning] slow Shard"));
  request = Of(id);
  request.clear_rank();
  request.set_level(v1::LOG_LEVEL_WARNING);
  page = List(request);
  EXPECT_EQ(page.lines_size(), 4);
  agent.Lines(run, 0, 41, {"[info] step", "[error] it broke"});
  request.set_after(page.next());
  EXPECT_THAT(Texts(List(request)), ElementsAre("1.42 [error] it broke"));
}

TEST_F(LogPages, WhatIsNoPlaceIsRefused) {
  const uint64_t id = Submit(kJob);
  const std::vector<std::pair<std::string, std::function<void(v1::ListLogsRequest&)>>> wrong = {
      {"rank is missing", [](auto& r) { r.clear_rank(), r.set_before_line(3); }},
      {"after: found '1-0'", [](auto& r) { r.set_after("1-0"); }},
      {"before: found 'x'", [](auto& r) { r.set_before("x"); }},
      {"at most one of them", [](auto& r) { r.set_after("1-0.1"), r.set_before_line(2); }},
      {"contains: found 1001 bytes", [](auto& r) { r.set_contains(std::string(1001, 'x')); }},
      {"has no start 9", [](auto& r) { r.set_after("9-0.1"); }},
  };
  for (const auto& [text, change] : wrong) {
    auto request = Of(id);
    change(request);
    v1::ListLogsResponse response;
    EXPECT_THAT(TryList(request, response).error_message(), HasSubstr(text));
  }
}

TEST(LogPlaces, ComeBackAsTheyWere) {
  const LogPlaces places{.generation = Generation(3), .lines = {{0, 12}, {7, 1'000'000}}};
  EXPECT_EQ(EncodePlaces(places), "3-0.12-7.1000000");
  EXPECT_EQ(DecodePlaces("after", EncodePlaces(places))->lines, places.lines);
  EXPECT_FALSE(DecodePlaces("after", "3-0.12-"));
  EXPECT_FALSE(DecodePlaces("after", "3-0.99999999999999999999999"));
}

}  // namespace
}  // namespace imgd
