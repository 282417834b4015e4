#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "imgd/v1/admin.grpc.pb.h"
#include "imgd/v1/event.grpc.pb.h"
#include "server/rpc/retention.h"
#include "server/rpc/testing/rpc_fixture.h"
#include "server/store/database.h"
#include "server/store/migrations.h"

namespace imgd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

struct Deletion : RpcTest {
  grpc::Status Delete(uint64_t id) {
    v1::DeleteJobRequest request;
    request.set_id(id);
    request.set_actor("ada");
    v1::DeleteJobResponse response;
    Context context;
    return jobs->DeleteJob(&context, request, &response);
  }
  /// A job of one rank that wrote a line, reported, and has ended.
  uint64_t EndedJob(FakeAgent& agent, int steps = 1) {
    const uint64_t id = Submit(kJob);
    const v1::RunId run = BringUp(agent);
    agent.Lines(run, 0, 1, {"hello"});
    std::vector<v1::TrainerEvent> events;
    for (int step = 1; step <= steps; ++step) events.push_back(StepEvent(static_cast<uint64_t>(step), 2.5));
    events.insert(events.end(), {CheckpointEvent("/c/g1/step1", 1, 1), FinishedEvent()});
    agent.Events(run, 0, 2, events);
    agent.Phase(run, v1::RUN_PHASE_GONE, {MakeExit(0, 0)});
    EXPECT_EQ(States(Watch(id)).back(), "JOB_STATE_COMPLETED");
    EXPECT_TRUE(agent.NextCommand()->has_forget_run());
    return id;
  }
  /// What the record of decisions has of the job.
  std::vector<std::string> Decisions(uint64_t id) {
    v1::ListEventsRequest request;
    request.set_job_id(id);
    v1::ListEventsResponse response;
    Context context;
    EXPECT_TRUE(v1::EventService::NewStub(channel)->ListEvents(&context, request, &response).ok());
    std::vector<std::string> out;
    for (const auto& event : response.events()) out.push_back(event.text());
    return out;
  }
  /// Tables with rows of the job, of both databases, but for the record of decisions.
  std::vector<std::string> TablesWith(uint64_t id) {
    std::vector<std::string> out;
    for (const char* file : {"state.db", "metrics.db"}) {
      auto database = Database::OpenForReading(folder / file);
      EXPECT_TRUE(database.has_value());
      // A column is a job's where a word of its name says so (job, job_id, of_job); job_event counts events.
      auto& tables = database->Prepare(
          "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' "
          "AND (('_' || c.name || '_') LIKE '%\\_job\\_%' ESCAPE '\\' AND c.name <> 'job_event' "
          "OR (m.name = 'jobs' AND c.name = 'id'))");
      std::vector<std::pair<std::string, std::string>> found;
      while (tables.executeStep())
        found.emplace_back(tables.getColumn(0).getString(), tables.getColumn(1).getString());
      tables.reset();
      EXPECT_GE(found.size(), 4u);
      for (const auto& [table, column] : found) {
        auto& count =
            database->Prepare(fmt::format("SELECT count(*) FROM {} WHERE {} = {}", table, column, id));
        count.executeStep();
        if (count.getColumn(0).getInt() > 0 && table != "decisions") out.push_back(table);
        count.reset();
      }
    }
    return out;
  }
};

TEST_F(Deletion, OfADeletedJobNothingIsLeft) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t id = EndedJob(agent);
  EXPECT_GE(TablesWith(id).size(), 6u);
  ASSERT_TRUE(std::filesystem::exists(folder / "logs" / std::to_string(id)));
  const auto status = Delete(id);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(TablesWith(id), IsEmpty());
  EXPECT_THAT(Decisions(id), testing::ElementsAre(fmt::format("job {} was deleted", id)));
  EXPECT_FALSE(std::filesystem::exists(folder / "logs" / std::to_string(id)));
  v1::GetJobRequest request;
  request.set_id(id);
  v1::GetJobResponse response;
  Context context;
  EXPECT_EQ(jobs->GetJob(&context, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Delete(id).error_code(), grpc::StatusCode::NOT_FOUND);
  // What comes late does not bring it back.
  v1::RunId run;
  run.set_job_id(id);
  run.set_generation(1);
  agent.Events(run, 0, 5, {StepEvent(2, 2.5)});
  agent.Lines(run, 0, 2, {"late"});
  EXPECT_THAT(TablesWith(id), IsEmpty());
  // Nor is its number given to another, not even after a restart.
  daemon.reset();
  StartDaemon();
  EXPECT_GT(Submit(kJob), id);
}

TEST_F(Deletion, AnEmptyFolderGoesAndOneWithFilesStays) {
  FakeAgent agent(channel, "a", 1);
  const auto folder_of = [this](uint64_t id) {
    v1::GetJobRequest request;
    request.set_id(id);
    v1::GetJobResponse response;
    Context context;
    EXPECT_TRUE(jobs->GetJob(&context, request, &response).ok());
    return std::filesystem::path(response.job().checkpoint_dir());
  };
  const uint64_t empty = EndedJob(agent);
  const uint64_t full = EndedJob(agent);
  const auto left = folder_of(empty);
  const auto kept = folder_of(full);
  ASSERT_EQ(left.parent_path(), folder / "checkpoints");
  std::filesystem::create_directories(left);
  std::filesystem::create_directories(kept / "step1");
  ASSERT_TRUE(Delete(empty).ok() && Delete(full).ok());
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(kept / "step1"));
}

TEST_F(Deletion, OnlyAJobThatHasEndedIsDeleted) {
  const uint64_t id = Submit(kJob);
  const auto status = Delete(id);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("has not ended"));
  EXPECT_EQ(Delete(99).error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_TRUE(Cancel(id).ok());
  EXPECT_TRUE(Delete(id).ok());
}

TEST_F(Deletion, LogsOfJobsThatAreGoneGoAtTheNextStart) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t id = EndedJob(agent);
  daemon.reset();
  std::filesystem::create_directories(folder / "logs/4711/1");
  std::filesystem::create_directories(folder / "logs/notes");
  StartDaemon();
  EXPECT_FALSE(std::filesystem::exists(folder / "logs/4711"));
  EXPECT_TRUE(std::filesystem::exists(folder / "logs/notes")) << "it is none of ours";
  EXPECT_TRUE(std::filesystem::exists(folder / "logs" / std::to_string(id)));
}

struct KeptFor : Deletion {
  /// Waits until imgd, which looks at once after its start, has nothing of the job in such a table any more.
  void AwaitGone(uint64_t id, const std::string& table) {
    for (int i = 0; i < 600; ++i) {
      const auto tables = TablesWith(id);
      if (std::find(tables.begin(), tables.end(), table) == tables.end()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ADD_FAILURE() << table << " still has rows of job " << id;
  }
  /// Rows go first, and then what they spoke of.
  void AwaitGone(const std::filesystem::path& path) {
    for (int i = 0; i < 600 && std::filesystem::exists(path); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(std::filesystem::exists(path)) << path;
  }
  void AwaitEvent(const std::string& text) {
    v1::ListEventsResponse response;
    for (int i = 0; i < 600; ++i) {
      Context context;
      EXPECT_TRUE(v1::EventService::NewStub(channel)->ListEvents(&context, {}, &response).ok());
      for (const auto& event : response.events()) {
        if (event.text() == text) return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ADD_FAILURE() << "no event '" << text << "' in " << response.ShortDebugString();
  }
  v1::ShowRetentionResponse Retention() {
    v1::ShowRetentionResponse response;
    Context context;
    EXPECT_TRUE(v1::AdminService::NewStub(channel)->ShowRetention(&context, {}, &response).ok());
    EXPECT_EQ(response.kinds_size(), 3);
    return response;
  }
  void FillWith(const RetentionRules& rules, v1::ShowRetentionResponse& out) {
    auto reader = Reader::Open(folder);
    ASSERT_TRUE(reader.has_value());
    const WallTime later{clock.Wall().micros + 1'000'000};
    const auto filled = FillRetention(rules, later, *reader, out);
    ASSERT_TRUE(filled.has_value()) << filled.error().message;
  }
  int StepsOf(uint64_t id) {
    auto database = Database::OpenForReading(folder / "metrics.db");
    EXPECT_TRUE(database.has_value());
    auto& count =
        database->Prepare(fmt::format("SELECT count(*) FROM events WHERE job = {} AND kind = 5", id));
    count.executeStep();
    return count.getColumn(0).getInt();
  }
};

TEST_F(KeptFor, WhatIsOlderThanItIsKeptGoes) {
  uint64_t id = 0;
  {
    FakeAgent agent(channel, "a", 1);
    id = EndedJob(agent);
  }
  daemon.reset();
  config.logs_kept_for_ms = 1;
  StartDaemon();
  AwaitGone(id, "log_streams");
  EXPECT_THAT(TablesWith(id), testing::Contains("jobs"));
  daemon.reset();
  config.logs_kept_for_ms = 0;
  config.metrics_kept_for_ms = 3'600'000;
  config.jobs_kept_for_ms = 1;
  StartDaemon();
  AwaitGone(id, "jobs");
  EXPECT_THAT(TablesWith(id), IsEmpty());
  EXPECT_THAT(Decisions(id),
              testing::ElementsAre(fmt::format("job {} was removed, as jobs are kept for a time", id)));
}

TEST_F(KeptFor, LogsThatAreTooMuchGoFromTheJobsThatEndedFirst) {
  std::vector<uint64_t> ids;
  {
    FakeAgent agent(channel, "a", 1);
    for (int i = 0; i < 3; ++i) ids.push_back(EndedJob(agent));
  }
  const auto kinds = [this] { return Retention().kinds(0); };
  const uint64_t bytes = kinds().bytes();
  EXPECT_EQ(kinds().going_jobs(), 0u);
  daemon.reset();
  config.logs_total_bytes = static_cast<int64_t>(bytes / 2);  // one of three is not enough
  StartDaemon();
  AwaitGone(ids[1], "log_streams");
  EXPECT_THAT(TablesWith(ids[2]), testing::Contains("log_streams"));
  AwaitGone(folder / "logs" / std::to_string(ids[0]));
  EXPECT_TRUE(std::filesystem::exists(folder / "logs" / std::to_string(ids[2])));
  AwaitEvent(
      "the logs of 2 jobs, the last of them job 2, were removed, those of the jobs that ended first: "
      "logs_total_bytes");
  EXPECT_EQ(kinds().bytes(), bytes / 3);
}

TEST_F(KeptFor, FiguresThatAreTooMuchGoFromTheJobsThatEndedFirst) {
  std::vector<uint64_t> ids;
  {
    FakeAgent agent(channel, "a", 1);
    for (int i = 0; i < 2; ++i) ids.push_back(EndedJob(agent, 600));
  }
  const uint64_t bytes = Retention().kinds(1).bytes();
  daemon.reset();
  config.metrics_total_bytes = static_cast<int64_t>(bytes - 1);
  StartDaemon();
  AwaitEvent("the figures of job 1 were removed, those of the jobs that ended first: metrics_total_bytes");
  EXPECT_LT(Retention().kinds(1).bytes(), bytes);
  EXPECT_EQ(StepsOf(ids[0]), 0) << "all of its figures";
  EXPECT_GT(StepsOf(ids[1]), 100) << "it ended later";
}

TEST_F(KeptFor, WhatWouldGoIsShownBeforeItDoes) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t id = EndedJob(agent);
  v1::ShowRetentionResponse shown;
  FillWith({.logs_kept_for = std::chrono::microseconds(1), .metrics_total_bytes = 1}, shown);
  EXPECT_THAT(shown.kinds(0).job_ids(), testing::ElementsAre(id));
  EXPECT_EQ(shown.kinds(0).going_bytes(), shown.kinds(0).bytes());
  EXPECT_THAT(shown.kinds(1).job_ids(), testing::ElementsAre(id));
  EXPECT_EQ(shown.kinds(1).total_bytes(), 1u);
  EXPECT_THAT(TablesWith(id), testing::Contains("log_streams")) << "and nothing went";
}

TEST_F(Deletion, CheckpointsAndFiguresOfClassesAreThere) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t id = Submit(kJob);
  const v1::RunId run = BringUp(agent);
  const std::string checkpoints = Get(id).job().checkpoint_dir();
  std::filesystem::create_directories(checkpoints + "/g1/step2");
  std::ofstream(checkpoints + "/g1/step2/manifest.json") << "{}";
  v1::TrainerEvent classes;
  classes.mutable_classes()->set_step(2);
  classes.mutable_classes()->set_class_count(2);
  classes.mutable_classes()->add_classes()->set_name("cat");
  agent.Events(run, 0, 2,
               {CheckpointEvent(checkpoints + "/g1/step1", 1, 1),
                CheckpointEvent(checkpoints + "/g1/step2", 2, 1), classes});
  v1::ListCheckpointsRequest list;
  list.set_id(id);
  v1::ListCheckpointsResponse listed;
  Context context;
  ASSERT_TRUE(jobs->ListCheckpoints(&context, list, &listed).ok());
  ASSERT_EQ(listed.checkpoints_size(), 2);
  EXPECT_EQ(listed.checkpoints(0).checkpoint().step(), 2u);
  EXPECT_EQ(listed.checkpoints(0).presence(), v1::CHECKPOINT_PRESENCE_HERE);
  EXPECT_EQ(listed.checkpoints(1).presence(), v1::CHECKPOINT_PRESENCE_GONE);
  v1::GetClassesRequest get;
  get.set_id(id);
  v1::GetClassesResponse got;
  Context another;
  ASSERT_TRUE(jobs->GetClasses(&another, get, &got).ok());
  EXPECT_EQ(got.figures().classes(0).name(), "cat");
}

}  // namespace
}  // namespace imgd
