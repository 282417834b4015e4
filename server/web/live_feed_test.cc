#include "server/web/live_feed.h"

#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "imgd/v1/dataset.grpc.pb.h"
#include "imgd/v1/token.grpc.pb.h"
#include "server/rpc/testing/rpc_fixture.h"
#include "server/store/backup.h"
#include "server/store/restore.h"
#include "server/web/testing/http_client.h"

namespace imgd {
namespace {

using testing::Contains;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Json = nlohmann::json;

/// One event as a browser sees it.
struct SeenEvent {
  std::string id;  ///< the newest one so far
  std::string name;
  Json data;
};

/// A browser's EventSource.
class Source {
 public:
  Source(int port, const std::string& last_event_id = "", const std::string& headers = "")
      : connection_(port) {
    const std::string last = last_event_id.empty() ? "" : fmt::format("Last-Event-ID: {}\r\n", last_event_id);
    const auto answer = connection_.Ask("GET", "/api/v1/stream", "", last + headers);
    status = answer ? answer->status : 0;
    head = answer ? answer->head : "";
  }
  /// The next event; waits for it. Nothing when the connection has ended.
  std::optional<SeenEvent> Next() {
    while (true) {
      const size_t end = text_.find("\n\n");
      if (end == std::string::npos) {
        const auto chunk = connection_.ReadChunk();
        if (!chunk) return std::nullopt;
        text_ += *chunk;
        continue;
      }
      if (auto event = Parse(text_.substr(0, end + 1)); text_.erase(0, end + 2), event) return event;
    }
  }
  /// The next event of a kind.
  std::optional<SeenEvent> Next(const std::string& name) {
    while (auto event = Next()) {
      if (event->name == name) return event;
    }
    return std::nullopt;
  }
  /// Waits until the server has begun; its number of the newest event.
  std::string Begin() {
    while (id_.empty()) {
      const auto chunk = connection_.ReadChunk();
      if (!chunk) return "";
      text_ += *chunk;
      if (const size_t at = text_.find("id: "); at != std::string::npos)
        id_ = text_.substr(at + 4, text_.find('\n', at) - at - 4);
    }
    return id_;
  }

  int status = 0;
  std::string head;

 private:
  std::optional<SeenEvent> Parse(const std::string& block) {
    SeenEvent event;
    std::string data;
    for (size_t begin = 0; begin < block.size();) {
      const size_t end = block.find('\n', begin);
      const std::string line = block.substr(begin, end - begin);
      begin = end + 1;
      if (line.starts_with("id: ")) id_ = line.substr(4);
      if (line.starts_with("event: ")) event.name = line.substr(7);
      if (line.starts_with("data: ")) data = line.substr(6);
    }
    event.id = id_;
    if (data.empty()) return std::nullopt;  // a sign of life, or a number alone
    event.data = Json::parse(data, nullptr, false);
    EXPECT_TRUE(event.data.is_object()) << data;
    return event;
  }

  web::TestConnection connection_;
  std::string text_;
  std::string id_;
};

/// A daemon with plain HTTP and the stream.
struct LiveFeedTest : RpcTest {
  void SetUp() override {
    RpcTest::SetUp();
    if (HasFatalFailure()) return;
    Restart();
  }
  void Restart() {
    daemon.reset();
    config.web.listen = "127.0.0.1:0";
    config.web.plain_http = true;
    StartDaemon();
  }
  std::string Token(const std::string& scope) {
    v1::CreateTokenRequest request;
    request.add_scopes(scope);
    v1::CreateTokenResponse response;
    Context context;
    EXPECT_TRUE(v1::TokenService::NewStub(channel)->CreateToken(&context, request, &response).ok());
    return response.secret();
  }
  web::TestAnswer Report(const std::string& path, const std::string& token, const std::string& body) {
    web::TestConnection connection(daemon->web_port());
    const auto answer = connection.Post("/api/v1/reports" + path, token, body);
    EXPECT_TRUE(answer && answer->status == 200) << (answer ? answer->body : "");
    return answer.value_or(web::TestAnswer{});
  }
  void Register(const std::string& name) {
    v1::RegisterDatasetRequest request;
    request.mutable_dataset()->set_name(name);
    request.mutable_dataset()->set_address("/data/" + name);
    v1::RegisterDatasetResponse response;
    Context context;
    EXPECT_TRUE(v1::DatasetService::NewStub(channel)->RegisterDataset(&context, request, &response).ok());
  }
  /// Numbers of the stored events after one.
  std::vector<std::string> Numbers(const std::string& after) {
    web::TestConnection connection(daemon->web_port());
    const auto answer = connection.Ask("GET", "/api/v1/events?page_size=1000&after_event=" + after);
    std::vector<std::string> out;
    const Json page = Json::parse(answer->body);
    for (const auto& event : page["events"]) out.push_back(event["number"].get<std::string>());
    return out;
  }
};

TEST_F(LiveFeedTest, WhatHappensComesWithItsNumber) {
  Source source(daemon->web_port());
  EXPECT_EQ(source.status, 200);
  EXPECT_THAT(source.head, HasSubstr("Content-Type: text/event-stream"));
  source.Begin();
  const uint64_t id = Submit(kJob);
  const auto event = source.Next("event");
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->data["job_id"], fmt::format("{}", id));
  EXPECT_EQ(event->data["number"], event->id);
  const auto job = source.Next("job");
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->data["name"], "rn50");
  EXPECT_EQ(job->data["state"], "JOB_STATE_QUEUED");
  EXPECT_TRUE(Cancel(id).ok());
  for (auto next = source.Next("job");; next = source.Next("job")) {
    ASSERT_TRUE(next.has_value());
    if (next->data["state"] == "JOB_STATE_CANCELLED") break;
  }
}

TEST_F(LiveFeedTest, AJobThatMovesUpInTheQueueIsToldThoughNothingHappenedToIt) {
  Submit(kJob);
  const uint64_t first = Submit(kJob);
  const uint64_t second = Submit(kJob);
  Source source(daemon->web_port());
  source.Begin();
  EXPECT_TRUE(Cancel(first).ok());
  for (auto job = source.Next("job");; job = source.Next("job")) {
    ASSERT_TRUE(job.has_value());
    if (job->data["id"] == fmt::format("{}", second) && job->data["queue_position"] == 2) break;
  }
}

TEST_F(LiveFeedTest, StepsAndEpochsOfAJobThatTrains) {
  const std::string token = Token("report");
  Source source(daemon->web_port());
  source.Begin();
  const auto started = Report("", token,
                              R"({"name": "mine", "job_yaml": "name: mine\n", "hosts": ["h"], "nodes": 1,
                                 "ranks_per_node": 1, "idempotency_key": "0123456789abcdef"})");
  const std::string id = Json::parse(started.body)["job_id"];
  Report("/" + id + "/events", token, R"({"events": [{"sequence": 1, "step": {"step": 7, "loss": 2.5}}]})");
  const auto step = source.Next("step");
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(step->data["job_id"], id);
  EXPECT_EQ(step->data["generation"], "1");
  EXPECT_EQ(step->data["step"], "7");
  EXPECT_EQ(step->data["loss"], 2.5);
  Report("/" + id + "/events", token,
         R"({"events": [{"sequence": 2, "epoch": {"epoch": 1, "val_top1": 0.5}}]})");
  for (auto job = source.Next("job");; job = source.Next("job")) {
    ASSERT_TRUE(job.has_value());
    if (job->data.contains("last_epoch")) break;
  }
}

TEST_F(LiveFeedTest, WhoComesAgainMissesNothing) {
  const uint64_t first = Submit(kJob);
  std::string last;
  {
    Source source(daemon->web_port());
    last = source.Begin();
  }
  EXPECT_TRUE(Cancel(first).ok());
  for (int i = 0; i < 300; ++i) Submit(kGang);  // more than a page of them
  Restart();
  const auto missed = Numbers(last);
  ASSERT_GT(missed.size(), 300u);
  Source source(daemon->web_port(), last);
  std::vector<std::string> seen;
  while (seen.size() < missed.size()) {
    const auto event = source.Next();
    ASSERT_TRUE(event.has_value());
    EXPECT_NE(event->name, "reset");
    if (event->name == "event") seen.push_back(event->id);
  }
  EXPECT_THAT(seen, ElementsAreArray(missed));
  // And then what happens now, once: why the last of those wait may be decided after the restart.
  const std::string next = fmt::format("{}", Submit(kJob));
  uint64_t number = std::stoull(seen.back());
  std::string job;
  while (job != next) {
    const auto event = source.Next("event");
    ASSERT_TRUE(event.has_value());
    EXPECT_GT(std::stoull(event->id), number);
    number = std::stoull(event->id);
    job = event->data["job_id"];
  }
}

TEST_F(LiveFeedTest, ThatAllIsToldFromNowOnIsSaidAfterWhatWasMissed) {
  Source other(daemon->web_port());
  const std::string last = other.Begin();
  EXPECT_EQ(other.Next()->name, "live");
  for (int i = 0; i < 300; ++i) Submit(kGang);  // more than a page of them
  const auto missed = Numbers(last);
  ASSERT_GT(missed.size(), 256u);
  Source late(daemon->web_port(), last);
  size_t seen = 0;
  for (auto event = late.Next();; event = late.Next()) {
    ASSERT_TRUE(event.has_value());
    if (event->name == "live") break;
    if (event->name == "event") ++seen;
  }
  EXPECT_GE(seen, missed.size());
  // What has no number is told to it as to the other.
  Register("shapes");
  for (Source* source : {&other, &late}) {
    const auto told = source->Next("datasets");
    ASSERT_TRUE(told.has_value());
    EXPECT_EQ(told->data["datasets"][0]["name"], "shapes");
  }
}

TEST_F(LiveFeedTest, NobodyIsGivenTheNumberOfWhatCouldNotBeStored) {
  Submit(kJob);
  {
    const FullDisk full(4096);
    v1::SubmitJobResponse response;
    EXPECT_EQ(Submit(kJob, response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  while (!List().warning().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  Source source(daemon->web_port());
  const std::string newest = source.Begin();
  EXPECT_THAT(Numbers("0"), Contains(newest));
}

TEST_F(LiveFeedTest, AJobThatIsDeletedIsToldToThoseWhoListenAndToThoseWhoComeAgain) {
  const auto delete_job = [this](uint64_t id) {
    v1::DeleteJobRequest request;
    request.set_id(id);
    v1::DeleteJobResponse response;
    Context context;
    return jobs->DeleteJob(&context, request, &response).ok();
  };
  const uint64_t first = Submit(kJob);
  const uint64_t second = Submit(kJob);
  EXPECT_TRUE(Cancel(first).ok());
  EXPECT_TRUE(Cancel(second).ok());
  Source source(daemon->web_port());
  const std::string before = source.Begin();
  ASSERT_TRUE(delete_job(first));
  auto gone = source.Next("job_gone");
  ASSERT_TRUE(gone);
  EXPECT_EQ(gone->data, (Json{{"id", fmt::format("{}", first)}}));
  Source late(daemon->web_port(), before);
  gone = late.Next("job_gone");
  ASSERT_TRUE(gone);
  EXPECT_EQ(gone->data["id"], fmt::format("{}", first));
  daemon.reset();
  config.jobs_kept_for_ms = 1;
  StartDaemon();
  Source of_retention(daemon->web_port(), gone->id);
  gone = of_retention.Next("job_gone");
  ASSERT_TRUE(gone);
  EXPECT_EQ(gone->data["id"], fmt::format("{}", second)) << "as it is older than jobs are kept";
}

TEST_F(LiveFeedTest, WhereTheGapCannotBeFilledItSaysSo) {
  Submit(kJob);
  Source from_the_future(daemon->web_port(), "1000000");
  EXPECT_EQ(from_the_future.Next()->name, "reset");
  Source no_number(daemon->web_port(), "seven");
  EXPECT_EQ(no_number.status, 400);
}

TEST_F(LiveFeedTest, WhoHeardWhatABackupLacksLoadsAllAnewOnceItIsRestored) {
  Submit(kJob);
  const std::filesystem::path file = folder.string() + ".tar";
  {
    auto backup = BackupSource::Make(folder, "1.2.3", clock.Wall());
    ASSERT_TRUE(backup.has_value()) << backup.error().message;
    std::ofstream out(file, std::ios::binary);
    for (auto piece = backup->Next(); piece && !piece->empty(); piece = backup->Next()) out << *piece;
  }
  Submit(kJob);  // is not in it
  const std::string last = Source(daemon->web_port()).Begin();
  daemon.reset();
  const auto restored = RestoreBackup(
      {.file = file, .state_dir = folder, .replace = true, .now = {clock.Wall().micros + 1'000'000}});
  ASSERT_TRUE(restored.has_value()) << restored.error().ToString();
  StartDaemon();
  Source source(daemon->web_port(), last);
  const auto first = source.Next();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->name, "reset");
  // And is told that once.
  Submit(kJob);
  Source again(daemon->web_port(), first->id);
  EXPECT_EQ(again.Next()->name, "event");
  std::filesystem::remove(file);
}

TEST_F(LiveFeedTest, HundredsListenAndAllHearTheSame) {
  constexpr int kListeners = 300;
  std::vector<std::unique_ptr<Source>> sources;
  for (int i = 0; i < kListeners; ++i) {
    sources.push_back(std::make_unique<Source>(daemon->web_port()));
    ASSERT_EQ(sources.back()->status, 200) << i;
  }
  std::string last;
  for (auto& source : sources) last = source->Begin();
  const uint64_t id = Submit(kJob);
  EXPECT_TRUE(Cancel(id).ok());
  const auto numbers = Numbers(last);
  ASSERT_THAT(numbers, testing::Not(IsEmpty()));
  for (auto& source : sources) {
    for (const auto& number : numbers) {
      const auto event = source->Next("event");
      ASSERT_TRUE(event.has_value());
      ASSERT_EQ(event->id, number);
    }
  }
  sources.resize(10);  // the others go; those that stay hear on
  const uint64_t next = Submit(kJob);
  for (auto& source : sources) EXPECT_EQ(source->Next("event")->data["job_id"], fmt::format("{}", next));
}

TEST_F(LiveFeedTest, ATokenIsNeededWhereThereIsOne) {
  const std::string token = Token("view");
  EXPECT_EQ(Source(daemon->web_port()).status, 401);
  EXPECT_EQ(Source(daemon->web_port(), "", fmt::format("Authorization: Bearer {}\r\n", token)).status, 200);
}

TEST_F(LiveFeedTest, DataSetsThatChangeAreToldAndThoseThatGo) {
  Source page(daemon->web_port());
  page.Begin();
  Register("shapes");
  auto seen = page.Next("datasets");
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->data["datasets"][0]["address"], "/data/shapes");
  EXPECT_THAT(seen->data["gone"], IsEmpty());
  v1::RemoveDatasetRequest removal;
  removal.set_name("shapes");
  v1::RemoveDatasetResponse removed;
  {
    Context context;
    ASSERT_TRUE(v1::DatasetService::NewStub(channel)->RemoveDataset(&context, removal, &removed).ok());
  }
  seen = page.Next("datasets");
  ASSERT_TRUE(seen);
  EXPECT_THAT(seen->data["datasets"], IsEmpty());
  EXPECT_EQ(seen->data["gone"], Json::array({"shapes"}));
}

}  // namespace
}  // namespace imgd
