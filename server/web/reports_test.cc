#include <google/protobuf/util/json_util.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "imgd/v1/report.pb.h"
#include "imgd/v1/token.grpc.pb.h"
#include "server/rpc/testing/rpc_fixture.h"
#include "server/store/database.h"
#include "server/web/testing/http_client.h"

namespace imgd {
namespace {

using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kStart =
    R"({"name": "mine", "job_yaml": "name: mine\n", "owner": "ada", "hosts": ["gpu-3"],
  "nodes": 1, "ranks_per_node": 2, "checkpoint_dir": "/c/mine", "idempotency_key": "0123456789abcdef"})";

/// A daemon that serves plain HTTP on the loopback.
struct ReportsTest : RpcTest {
  void SetUp() override {
    RpcTest::SetUp();
    if (HasFatalFailure()) return;
    Restart();
    token = MakeToken("t");
  }
  void Restart() {
    daemon.reset();
    config.web.listen = "127.0.0.1:0";
    config.web.plain_http = true;
    StartDaemon();
  }
  std::string MakeToken(const std::string& name, uint64_t ttl_ms = 0, const std::string& scope = "report") {
    v1::CreateTokenRequest request;
    request.set_name(name);
    request.add_scopes(scope);
    request.set_ttl_ms(ttl_ms);
    v1::CreateTokenResponse response;
    Context context;
    const auto status = v1::TokenService::NewStub(channel)->CreateToken(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.secret();
  }
  grpc::Status Revoke(const std::string& name) {
    v1::RevokeTokenRequest request;
    request.set_name(name);
    v1::RevokeTokenResponse response;
    Context context;
    return v1::TokenService::NewStub(channel)->RevokeToken(&context, request, &response);
  }
  web::TestAnswer Post(const std::string& path, const std::string& body) { return Post(path, body, token); }
  web::TestAnswer Post(const std::string& path, const std::string& body, const std::string& with) {
    web::TestConnection connection(daemon->web_port());
    const auto answer = connection.Post(path, with, body);
    EXPECT_TRUE(answer.has_value());
    return answer.value_or(web::TestAnswer{});
  }
  v1::StartReportResponse Start(const std::string& body = kStart) {
    const auto answer = Post("/api/v1/reports", body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    v1::StartReportResponse response;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(answer.body, &response).ok());
    return response;
  }
  /// The number that imgd has stored up to.
  uint64_t Report(uint64_t job, const std::string& events) {
    const auto answer = Post(fmt::format("/api/v1/reports/{}/events", job), "{\"events\": [" + events + "]}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    v1::ReportEventsResponse response;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(answer.body, &response).ok());
    return response.sequence();
  }
  static std::string Step(uint64_t sequence, uint64_t step) {
    return fmt::format(R"({{"sequence": {}, "step": {{"step": {}, "loss": "NaN"}}}})", sequence, step);
  }
  static std::string Note(uint64_t sequence, uint64_t line, const std::string& text) {
    return fmt::format(R"({{"sequence": {}, "note": {{"line_number": {}, "text": "{}"}}}})", sequence, line,
                       text);
  }
  std::vector<std::string> Lines(uint64_t job) {
    v1::ReadLogsRequest logs;
    logs.set_id(job);
    return Logs(logs);
  }
  std::vector<uint64_t> Steps(uint64_t job) {
    std::vector<uint64_t> out;
    for (const auto& event : Watch(job, 0, false)) {
      if (event.has_step()) out.push_back(event.step().step());
    }
    return out;
  }

  std::string token;
};

TEST_F(ReportsTest, ARunByHandIsSeenFromItsStartToItsEnd) {
  const auto started = Start();
  const uint64_t id = started.job_id();
  EXPECT_EQ(started.sequence(), 0u);
  auto job = Get(id).job();
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(job.external().hosts(), ElementsAre("gpu-3"));
  EXPECT_EQ(job.reason_text(), "started by hand on gpu-3");
  EXPECT_EQ(job.job_yaml(), "name: mine\n");
  EXPECT_EQ(Report(id, R"({"sequence": 1, "started": {"world_size": 2, "total_steps": 9}})"), 1u);
  EXPECT_EQ(Report(id, Step(2, 1) + "," + Step(3, 2)), 3u);
  EXPECT_EQ(
      Report(id, R"({"sequence": 4, "note": {"line_number": 1, "text": "late file", "is_stderr": true}})"),
      4u);
  EXPECT_EQ(
      Report(id,
             R"({"sequence": 5, "checkpoint": {"path": "/c/mine/g7/step2", "step": 2, "generation": 7}})"),
      5u);
  EXPECT_EQ(Report(id, R"({"sequence": 6, "finished": {"step": 9}})"), 6u);
  job = Get(id).job();
  EXPECT_EQ(job.state(), v1::JOB_STATE_COMPLETED);
  EXPECT_EQ(job.last_checkpoint().path(), "/c/mine/g7/step2");
  EXPECT_THAT(Steps(id), ElementsAre(1, 2));
  v1::ReadLogsRequest logs;
  logs.set_id(id);
  EXPECT_THAT(Logs(logs), ElementsAre("0: late file"));
  EXPECT_EQ(Cancel(id).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(ReportsTest, ItsCheckpointsSayHowGoodTheyAreAndWhyTheyStay) {
  const auto root = folder / "mine";
  std::string start = kStart;
  start.replace(start.find("/c/mine"), 7, root.native());
  start.replace(start.find("name: mine"), 10,
                R"(name: mine\ndata: {train: /d}\ncheckpoint: {keep: 1, keep_every_epochs: 2})");
  const uint64_t id = Start(start).job_id();
  const auto write = [&root](uint64_t step, const std::string& file, const std::string& text) {
    const auto path = root / "g0" / fmt::format("step{}", step);
    std::filesystem::create_directories(path);
    std::ofstream(path / file) << text;
  };
  const double top1s[] = {0.75, 0.5, 0.25};
  uint64_t sequence = 0;
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
    const uint64_t step = epoch * 10;
    const double top1 = top1s[epoch - 1];
    write(step, "validation.json", fmt::format(R"({{"step": {}, "top1": {}}})", step, top1));
    write(step, "state.json", fmt::format(R"({{"epoch": {}}})", epoch));
    write(step, "manifest.json", "{}");
    Report(id, fmt::format(R"({{"sequence": {}, "checkpoint": {{"path": "{}/g0/step{}", "step": {}}}}},)"
                           R"({{"sequence": {}, "epoch": {{"epoch": {}, "step": {}, "val_top1": {}}}}})",
                           sequence + 1, root.native(), step, step, sequence + 2, epoch, step, top1));
    sequence += 2;
  }
  const auto checkpoints = [&] {
    v1::ListCheckpointsRequest request;
    request.set_id(id);
    v1::ListCheckpointsResponse response;
    Context context;
    EXPECT_TRUE(jobs->ListCheckpoints(&context, request, &response).ok());
    std::vector<std::string> out;
    for (const auto& one : response.checkpoints()) {
      const std::vector<std::string> kept(one.kept_as().begin(), one.kept_as().end());
      out.push_back(fmt::format("{} {} {}", one.name(), one.val_top1(), fmt::join(kept, ", ")));
    }
    return out;
  };
  const std::vector<std::string> all = {"g0-step30 0.25 last", "g0-step20 0.5 every 2 epochs",
                                        "g0-step10 0.75 best"};
  EXPECT_EQ(checkpoints(), all);
  std::filesystem::remove_all(root);
  EXPECT_EQ(checkpoints(), all) << "as they were reported";
}

TEST_F(ReportsTest, EventsAreStoredOnceAndWithoutGapsAlsoOverARestart) {
  const uint64_t id = Start().job_id();
  EXPECT_EQ(Report(id, Step(1, 1) + "," + Step(2, 2)), 2u);
  EXPECT_EQ(Report(id, Step(1, 1) + "," + Step(2, 2) + "," + Step(3, 3)), 3u) << "sent again";
  EXPECT_EQ(Report(id, Step(5, 5)), 3u) << "number 4 is missing";
  EXPECT_EQ(Report(id, ""), 3u) << "a sign of life";
  Restart();
  const auto again = Start();
  EXPECT_EQ(again.job_id(), id);
  EXPECT_TRUE(again.existed());
  EXPECT_EQ(again.sequence(), 3u);
  EXPECT_EQ(Report(id, Step(3, 3) + "," + Step(4, 4)), 4u);
  EXPECT_THAT(Steps(id), ElementsAre(1, 2, 3, 4));
}

TEST_F(ReportsTest, NotesAreStoredWhateverTheTrainerCountedBeforeImgdWasRestored) {
  const uint64_t id = Start().job_id();
  EXPECT_EQ(Report(id, Note(1, 1, "one")), 1u);
  EXPECT_EQ(Report(id, Note(2, 6, "six")), 2u) << "those between went to what was lost";
  EXPECT_EQ(Report(id, Note(2, 6, "six") + "," + Note(3, 7, "last words")), 3u);
  EXPECT_THAT(Lines(id), ElementsAre("0: one", HasSubstr("0: [imgagent] 4 lines are missing here (2 to 5)"),
                                     "0: six", "0: last words"));
}

TEST_F(ReportsTest, ANoteThatIsStoredBeforeImgdIsKilledComesOnce) {
  const uint64_t id = Start().job_id();
  EXPECT_EQ(Report(id, Note(1, 1, "one")), 1u);
  {
    auto state = Database::OpenForReading(folder / "state.db");
    ASSERT_TRUE(state.has_value());
    ASSERT_TRUE(state->CopyTo(folder / "before.db").has_value());
  }
  EXPECT_EQ(Report(id, Note(2, 2, "two") + "," + Note(3, 4, "four")), 3u);
  daemon.reset();
  // Its files are committed one after the other, that of jobs last.
  for (const char* file : {"state.db", "state.db-wal", "state.db-shm"})
    std::filesystem::remove(folder / file);
  std::filesystem::rename(folder / "before.db", folder / "state.db");
  Restart();
  EXPECT_EQ(Report(id, Note(2, 2, "two") + "," + Note(3, 4, "four")), 3u) << "it is sent again";
  EXPECT_THAT(Lines(id),
              ElementsAre("0: one", "0: two", HasSubstr("lines are missing here (3 to 3)"), "0: four"));
}

TEST_F(ReportsTest, SilenceFailsItAndItComesBack) {
  config.report_timeout_ms = 1'000;
  Restart();
  const uint64_t id = Start().job_id();
  WaitFor(id, v1::JOB_STATE_FAILED);
  EXPECT_EQ(Get(id).job().reason(), v1::REASON_CODE_SILENT);
  EXPECT_EQ(Report(id, Step(1, 1) + R"(, {"sequence": 2, "finished": {}})"), 2u);
  EXPECT_THAT(States(Watch(id)), ElementsAre("JOB_STATE_RUNNING", "JOB_STATE_FAILED", "JOB_STATE_RUNNING",
                                             "JOB_STATE_COMPLETED"));
}

TEST_F(ReportsTest, ATokenThatExpiresEndsWhatIsSentByIt) {
  constexpr uint64_t kHourMs = 3'600'000;
  web::TestConnection connection(daemon->web_port());
  const auto by = fmt::format("Authorization: Bearer {}\r\n", MakeToken("brief", kHourMs, "view"));
  ASSERT_EQ(connection.Ask("GET", "/api/v1/stream", "", by)->status, 200);
  clock.forward_micros = int64_t{kHourMs} * 1000;
  EXPECT_TRUE(connection.ReadToEnd());
}

TEST_F(ReportsTest, ATokenIsNeededAndHasToBeTheRunsOwn) {
  const uint64_t id = Start().job_id();
  const std::string events = fmt::format("/api/v1/reports/{}/events", id);
  EXPECT_EQ(Post("/api/v1/reports", kStart, "").status, 401);
  EXPECT_EQ(Post(events, "{}", "imgd_0000").status, 401);
  const std::string other = MakeToken("other");
  EXPECT_EQ(Post(events, "{}", other).status, 403);
  EXPECT_EQ(Post("/api/v1/reports", kStart, other).status, 403) << "the key is another's";
  ASSERT_TRUE(Revoke("t").ok());
  EXPECT_EQ(Post(events, "{}").status, 401);
  EXPECT_EQ(Revoke("t").error_code(), grpc::StatusCode::NOT_FOUND);
  const std::string again = MakeToken("t");
  EXPECT_EQ(Post(events, "{}", again).status, 200) << "the same name, by whoever may make it";
  const std::string brief = MakeToken("brief", 1);
  while (Post(events, "{}", brief).status == 403) {
  }
  EXPECT_EQ(Post(events, "{}", brief).status, 401) << "it has expired";
}

TEST_F(ReportsTest, TokensOutliveTheDaemonAndAreNowhereInItsFiles) {
  Restart();
  EXPECT_EQ(Start().job_id(), 1u);
  v1::ListTokensResponse list;
  Context context;
  ASSERT_TRUE(v1::TokenService::NewStub(channel)->ListTokens(&context, {}, &list).ok());
  ASSERT_THAT(list.tokens(), SizeIs(1));
  EXPECT_EQ(list.tokens(0).name(), "t");
  EXPECT_THAT(list.tokens(0).scopes(), ElementsAre("report"));
  daemon.reset();
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    if (!file.is_regular_file()) continue;
    EXPECT_THAT(ReadFile(file.path()).value(), testing::Not(HasSubstr(token))) << file.path();
  }
}

TEST_F(ReportsTest, WhatCannotBeIsRefusedInJson) {
  const auto refused = [this](const std::string& path, const std::string& body, int status,
                              const std::string& words) {
    const auto answer = Post(path, body);
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("\"message\":"));
    EXPECT_THAT(answer.body, HasSubstr(words));
  };
  refused("/api/v1/reports", "{", 400, "StartReportRequest");
  refused("/api/v1/reports", "{}", 400, "at least 16 are needed");
  refused("/api/v1/reports", "\xff\xfe", 400, "INVALID_ARGUMENT");
  refused("/api/v1/reports/7/events", "{}", 404, "there is no job 7");
  refused("/api/v1/reports/x/events", "{}", 404, "NOT_FOUND");
  refused("/api/v1/reports/1/events", std::string(5 << 20, ' '), 413, "too long");
  const uint64_t managed = Submit(std::string(kJob));
  refused(fmt::format("/api/v1/reports/{}/events", managed), "{}", 409, "was not started by hand");
  Start();
  std::string other = kStart;
  other.replace(other.find("name: mine"), 10, "name: your");
  refused("/api/v1/reports", other, 409, "with another job file");
  EXPECT_EQ(web::TestConnection(daemon->web_port()).Get("/healthz")->body, "{\"status\":\"ok\"}\n");
}

TEST_F(ReportsTest, ItsFileSaysWhoIsTold) {
  for (const char* target : {"ops", "chat"})
    config.notifications.targets[target] = {.url = "http://127.0.0.1:1/"};  // nobody is there
  config.notifications.all = {{"ops", {NoticeEvent::kFinished}}};
  config.notifications.projects["vision"] = {{"chat", {NoticeEvent::kFinished}}};
  Restart();
  const auto finish = [this](const std::string& key, const std::string& file) {
    std::string start = kStart;
    start.replace(start.find("name: mine"), 10, file);
    start.replace(start.find("0123456789abcdef"), 16, key);
    EXPECT_EQ(Report(Start(start).job_id(), R"({"sequence": 1, "finished": {}})"), 1u);
  };
  finish("only-its-project", R"(name: mine\nproject: vision)");
  finish("targets-and-more", R"(name: mine\nproject: vision\nnotify: [ops, {to: nowhere}]\nmine: 1)");
  finish("nobody-is-to-know", R"(name: mine\nnotify: [])");
  finish("what-is-no-yaml-at-all", R"(name: mine\nproject: vision\nnotify: [chat)");
  const auto by = fmt::format("Authorization: Bearer {}\r\n", MakeToken("look", 0, "view"));
  const auto page = web::TestConnection(daemon->web_port()).Ask("GET", "/metrics", "", by);
  ASSERT_TRUE(page.has_value());
  EXPECT_THAT(page->body, ContainsRegex("imgd_notifications_pending\\{[^}]*target=\"ops\"\\} 2\n"));
  EXPECT_THAT(page->body, ContainsRegex("imgd_notifications_pending\\{[^}]*target=\"chat\"\\} 1\n"));
}

TEST_F(ReportsTest, ManyRunsAtOnceAreAllAnswered) {
  constexpr int kRuns = 8;
  std::vector<std::thread> runs;
  runs.reserve(kRuns);
  for (int run = 0; run < kRuns; ++run) {
    runs.emplace_back([this, run] {
      std::string start = kStart;
      start.replace(start.find("0123456789abcdef"), 16, fmt::format("key-of-the-run-{:02}", run));
      const uint64_t id = Start(start).job_id();
      for (uint64_t i = 1; i <= 50; ++i) ASSERT_EQ(Report(id, Step(i, i)), i);
    });
  }
  for (auto& run : runs) run.join();
  EXPECT_THAT(List().jobs(), SizeIs(kRuns));
}

}  // namespace
}  // namespace imgd
