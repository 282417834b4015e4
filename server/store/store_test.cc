#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "server/store/codec.h"
#include "server/store/log_reader.h"
#include "server/store/log_store.h"
#include "server/store/reader.h"
#include "server/store/state_store.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// A folder of the test's own.
struct StoreTest : testing::Test {
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder =
        std::filesystem::path(testing::TempDir()) / fmt::format("imgd_store_{}_{}", info->name(), ::getpid());
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  StateStore OpenState() {
    auto store = StateStore::Open(folder);
    EXPECT_TRUE(store.has_value()) << store.error().message;
    return std::move(*store);
  }
  MetricsStore OpenMetrics() {
    auto store = MetricsStore::Open(folder);
    EXPECT_TRUE(store.has_value()) << store.error().message;
    return std::move(*store);
  }
  std::filesystem::path folder;
};

JobRecord MakeJob(uint64_t id, JobState state = JobState::kQueued, const std::string& owner = "ada") {
  return {.id = JobId(id),
          .name = fmt::format("rn50-{}", id),
          .owner = owner,
          .state = state,
          .reason = {ReasonCode::kSubmitted, "submitted"},
          .submitted = {static_cast<int64_t>(id)}};
}

std::vector<uint64_t> Ids(const std::vector<JobRow>& rows) {
  std::vector<uint64_t> out;
  out.reserve(rows.size());
  for (const auto& row : rows) out.push_back(row.job.id.value());
  return out;
}

std::vector<StoredLine> Lines(uint64_t first, uint64_t last, const std::string& text = "line") {
  std::vector<StoredLine> out;
  for (uint64_t n = first; n <= last; ++n) out.push_back({n, static_cast<int64_t>(n), n % 2 == 0, text});
  return out;
}

std::vector<uint64_t> Numbers(const std::vector<StoredLine>& lines) {
  std::vector<uint64_t> out;
  out.reserve(lines.size());
  for (const auto& line : lines) out.push_back(line.number);
  return out;
}

const LogStream kStream{{JobId(1), Generation(1)}, 0};

TEST_F(StoreTest, AJobComesBackAsItWas) {
  JobRecord job = MakeJob(1, JobState::kRunning);
  job.generation = Generation(3);
  job.run.parts = {
      {.node = NodeId("a"), .first_rank = 0, .devices = {0, 2}, .whole = true, .phase = RunPhase::kRunning}};
  job.preemptible = false;
  job.project = "vision";
  job.needs = {.gpu = true,
               .models = {"H100"},
               .memory_bytes = 80,
               .whole_nodes = true,
               .labels = {{"zone", {"x", "y"}}},
               .not_labels = {{"capacity", {"spot"}}}};
  job.run.exits = {{.rank = 1, .signal = 9, .last_error_line = "no \xff UTF-8", .by_us = true}};
  job.run.exits[0].match = {.pattern = "ecc",
                            .label = "broken",
                            .line = "\"ECC\"",
                            .action = PatternAction::kExcludeNode,
                            .collective = true,
                            .place = 7};
  job.run.failures = {{.rank = 1, .message = "it broke", .match = job.run.exits[0].match}};
  job.run.troubles = {{ReasonCode::kStartFailed, "no program", NodeId("a")}};
  job.crashes = {"exit code 1 | step 7 | it broke", 2, {NodeId("a"), NodeId("b")}};
  job.run.started = {0, 1};
  job.run.stop = StopFor::kCancel;
  job.max_nodes = 8;
  job.resize_interval_ms = 5000;
  job.run.grows_to = {{.node = NodeId("a"), .devices = {0}},
                      {.node = NodeId("b"), .first_rank = 1, .devices = {1}}};
  job.run.avoided = {NodeId("c")};
  {
    auto store = OpenState();
    store.SaveJob(job);
    store.SaveJobFile(job.id, "name: x\n");
    store.SaveCheckpoint({job.id, {.path = "/c/1", .step = 1}});
    store.SaveCheckpoint({job.id, {.path = "/c/2", .step = 2, .accepted = {77}}});
    store.SaveKey("key", {.job = job.id, .content = "5891b5b5"});
    store.SaveEventPosition({job.id, Generation(3)}, 1, 42);
    ASSERT_TRUE(store.Commit().has_value());
  }
  auto store = OpenState();
  const auto stored = store.Load(10);
  ASSERT_TRUE(stored.has_value());
  ASSERT_THAT(stored->jobs, SizeIs(1));
  const JobRecord& back = stored->jobs[0];
  EXPECT_EQ(back.name, "rn50-1");
  EXPECT_EQ(back.run.parts, job.run.parts);
  EXPECT_EQ(back.needs, job.needs);
  EXPECT_FALSE(back.preemptible);
  EXPECT_EQ(back.project, "vision");
  EXPECT_EQ(back.run.started, job.run.started);
  EXPECT_EQ(back.max_nodes, 8U);
  EXPECT_EQ(back.resize_interval_ms, 5000);
  EXPECT_EQ(back.run.grows_to, job.run.grows_to);
  EXPECT_EQ(back.run.avoided, job.run.avoided);
  EXPECT_EQ(back.run.stop, StopFor::kCancel);
  EXPECT_EQ(back.run.exits[0].signal, 9);
  EXPECT_EQ(back.run.exits[0].match, job.run.exits[0].match);
  EXPECT_EQ(back.run.failures, job.run.failures);
  EXPECT_EQ(back.run.troubles, job.run.troubles);
  EXPECT_EQ(back.crashes, job.crashes);
  ASSERT_THAT(back.checkpoints, SizeIs(2));
  EXPECT_EQ(back.checkpoints[0].path, "/c/2");
  EXPECT_EQ(back.checkpoints[0].accepted, (WallTime{77}));
  EXPECT_EQ(stored->next_job, JobId(2));
  const auto key = store.FindKey("key").value();
  ASSERT_TRUE(key.has_value());
  EXPECT_EQ(key->job, job.id);
  EXPECT_EQ(key->content, "5891b5b5");
  EXPECT_FALSE(store.FindKey("other").value().has_value());
  EXPECT_EQ(*store.JobFile(job.id), "name: x\n");
  EXPECT_EQ(*store.EventPosition({job.id, Generation(3)}, 1), 42u);
}

TEST_F(StoreTest, AReasonIsStoredAlone) {
  {
    auto store = OpenState();
    store.SaveJob(MakeJob(1));
    store.SaveReason(JobId(1), {ReasonCode::kQuota, "its quota is used up"});
    ASSERT_TRUE(store.Commit().has_value());
  }
  auto store = OpenState();
  const auto stored = store.Load(10);
  ASSERT_TRUE(stored.has_value());
  JobRecord expected = MakeJob(1);
  expected.reason = {ReasonCode::kQuota, "its quota is used up"};
  ASSERT_THAT(stored->jobs, SizeIs(1));
  EXPECT_EQ(stored->jobs[0].reason, expected.reason);
  EXPECT_EQ(stored->jobs[0].name, expected.name);
  EXPECT_EQ(stored->jobs[0].state, expected.state);
}

TEST_F(StoreTest, WhatUsersHaveHadComesBack) {
  {
    auto store = OpenState();
    store.SaveUsage("ada", {.device_seconds = 12.5, .at = {7}});
    store.SaveUsage("ada", {.device_seconds = 13.5, .at = {8}});
    ASSERT_TRUE(store.Commit().has_value());
  }
  const auto stored = OpenState().Load(10);
  ASSERT_TRUE(stored.has_value());
  EXPECT_EQ(stored->usage, (std::map<std::string, Usage>{{"ada", {.device_seconds = 13.5, .at = {8}}}}));
}

TEST_F(StoreTest, WhatAccountsHaveUsedComesBackUntilItIsForgotten) {
  Account account;
  account.Add(7200, 1.5, {1'000'000'000'000'000}, {1'000'003'600'000'000});
  {
    auto store = OpenState();
    store.SaveAccount("user ada", Account());
    store.SaveAccount("user ada", account);
    store.SaveAccount("project old", account);
    store.SaveUsage("bob", {.device_seconds = 1, .at = {7}});
    ASSERT_TRUE(store.Commit().has_value());
    store.RemoveAccount("project old");
    store.RemoveUsage("bob");
    ASSERT_TRUE(store.Commit().has_value());
  }
  const auto stored = OpenState().Load(10);
  ASSERT_TRUE(stored.has_value());
  EXPECT_EQ(stored->accounts, (std::map<std::string, Account>{{"user ada", account}}));
  EXPECT_TRUE(stored->usage.empty());
}

TEST_F(StoreTest, ANodeComesBackAsItWas) {
  {
    auto store = OpenState();
    store.SaveNode({.id = NodeId("gpu-1"),
                    .devices = {{.index = 0, .model = "NVIDIA H100 80GB HBM3", .memory_bytes = 80}},
                    .labels = {{"zone", "x"}}});
    ASSERT_TRUE(store.Commit().has_value());
  }
  const auto stored = OpenState().Load(10);
  ASSERT_TRUE(stored.has_value());
  ASSERT_THAT(stored->nodes, SizeIs(1));
  EXPECT_EQ(stored->nodes[0].devices.at(0).model, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(stored->nodes[0].labels, (Labels{{"zone", "x"}}));
}

TEST_F(StoreTest, ARunByHandAndATokenComeBackAsTheyWere) {
  JobRecord job = MakeJob(1, JobState::kRunning);
  job.by_hand = ByHand{.hosts = {"gpu-3", "gpu,4"}, .token = "t", .last_heard = {77}};
  {
    auto store = OpenState();
    store.SaveJob(job);
    store.SaveJob(MakeJob(2, JobState::kRunning));
    store.SaveToken(
        {.name = "t", .hash = "ab", .owner = "ada", .scopes = {"report", "view"}, .expires = {9}});
    store.SaveToken({.name = "gone", .hash = "cd", .scopes = {"report"}});
    store.RemoveToken("gone");
    ASSERT_TRUE(store.Commit().has_value());
  }
  auto store = OpenState();
  const auto stored = store.Load(10);
  ASSERT_TRUE(stored.has_value());
  ASSERT_THAT(stored->jobs, SizeIs(2));
  ASSERT_TRUE(stored->jobs[0].by_hand.has_value());
  EXPECT_THAT(stored->jobs[0].by_hand->hosts, ElementsAre("gpu-3", "gpu,4"));
  EXPECT_EQ(stored->jobs[0].by_hand->token, "t");
  EXPECT_EQ(stored->jobs[0].by_hand->last_heard, (WallTime{77}));
  EXPECT_FALSE(stored->jobs[1].by_hand.has_value());
  ASSERT_THAT(stored->tokens, SizeIs(1));
  EXPECT_THAT(stored->tokens.at("t").scopes, ElementsAre("report", "view"));
  EXPECT_EQ(stored->tokens.at("t").expires, (WallTime{9}));
}

TEST_F(StoreTest, TheClusterIdStays) {
  const std::string id = OpenState().cluster_id();
  EXPECT_THAT(id, SizeIs(8));
  EXPECT_EQ(OpenState().cluster_id(), id);
}

TEST_F(StoreTest, WhatWasNotCommittedIsNotThere) {
  auto store = OpenState();
  store.SaveJob(MakeJob(1));
  EXPECT_TRUE(store.FindJob(JobId(1))->has_value()) << "the batch sees itself";
  store.Rollback();
  EXPECT_FALSE(store.FindJob(JobId(1))->has_value());
}

TEST_F(StoreTest, WhereEachStartsRanksWereIsKept) {
  auto store = OpenState();
  const RunKey first{JobId(3), Generation(1)};
  store.SavePlacement(first, {{.node = NodeId("a"), .first_rank = 0, .devices = {0, 1}},
                              {.node = NodeId("b"), .first_rank = 2, .devices = {4, 5}}});
  ASSERT_TRUE(store.Commit().has_value());
  EXPECT_TRUE(*store.RankWasOn(first, 1, NodeId("a")));
  EXPECT_TRUE(*store.RankWasOn(first, 3, NodeId("b")));
  EXPECT_FALSE(*store.RankWasOn(first, 1, NodeId("b")));
  EXPECT_FALSE(*store.RankWasOn(first, 4, NodeId("b")));
  EXPECT_FALSE(*store.RankWasOn({JobId(3), Generation(2)}, 1, NodeId("a")));
}

TEST_F(StoreTest, AFileOfANewerImgdIsRefused) {
  OpenState();
  {
    SQLite::Database file((folder / "state.db").string(), SQLite::OPEN_READWRITE);
    file.exec("PRAGMA user_version=99");
  }
  const auto refused = StateStore::Open(folder);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refused.error().message, HasSubstr("written by a newer imgd: its schema is 99"));
}

TEST_F(StoreTest, AMigrationThatFailsLeavesTheFileAsItWas) {
  const std::vector<Migration> good = {{1, "0001_one", "CREATE TABLE one (x);"}};
  const std::vector<Migration> bad = {good[0],
                                      {2, "0002_two", "CREATE TABLE two (x); CREATE TABLE one (x);"}};
  const auto path = folder / "m.db";
  ASSERT_TRUE(Database::OpenForWriting(path, good).has_value());
  const auto failed = Database::OpenForWriting(path, bad);
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message, HasSubstr("migration 0002_two"));
  auto again = Database::OpenForWriting(path, good);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_FALSE(again->Guard([&] { again->Prepare("SELECT * FROM two"); }).has_value());
}

TEST_F(StoreTest, AFileThatIsNoDatabaseIsNamed) {
  std::ofstream(folder / "state.db") << std::string(4096, 'x');
  const auto refused = StateStore::Open(folder);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr((folder / "state.db").native()));
}

TEST_F(StoreTest, ListsByPagesAndFilters) {
  auto store = OpenState();
  OpenMetrics();
  for (uint64_t id = 1; id <= 10; ++id) {
    store.SaveJob(
        MakeJob(id, id % 2 == 0 ? JobState::kCompleted : JobState::kQueued, id <= 4 ? "ada" : "bob"));
  }
  ASSERT_TRUE(store.Commit().has_value());
  auto reader = Reader::Open(folder);
  ASSERT_TRUE(reader.has_value()) << reader.error().message;
  EXPECT_THAT(Ids(*reader->Jobs({.most = 3})), ElementsAre(10, 9, 8));
  EXPECT_THAT(Ids(*reader->Jobs({.before = JobId(8), .most = 3})), ElementsAre(7, 6, 5));
  EXPECT_THAT(Ids(*reader->Jobs({.owner = "ada"})), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(Ids(*reader->Jobs({.states = {JobState::kCompleted}, .owner = "ada"})), ElementsAre(4, 2));
  EXPECT_THAT(Ids(*reader->Jobs({.states = {JobState::kCompleted, JobState::kQueued}, .most = 2})),
              ElementsAre(10, 9));
  EXPECT_THAT(Ids(*reader->Jobs({.name_contains = "-1"})), ElementsAre(10, 1));
  EXPECT_THAT(Ids(*reader->Jobs({.name_contains = "%"})), IsEmpty());
}

TEST_F(StoreTest, EventsOfBothDatabasesComeByNumber) {
  auto state = OpenState();
  auto metrics = OpenMetrics();
  const RunKey run{JobId(1), Generation(1)};
  state.AppendEvent(1, {.job = run.job, .first = true, .reason = {ReasonCode::kSubmitted, "submitted"}});
  metrics.AppendEvent({.run = run, .number = 2, .sequence = 1, .kind = EventKind::kStep, .payload = "s"});
  state.AppendEvent(3, {.job = run.job, .to = JobState::kStarting});
  metrics.AppendEvent({.run = run, .number = 4, .sequence = 2, .kind = EventKind::kEpoch, .payload = "e"});
  // Reported again after a crash between the two commits: it keeps its first number.
  metrics.AppendEvent({.run = run, .number = 5, .sequence = 2, .kind = EventKind::kEpoch, .payload = "e"});
  ASSERT_TRUE(metrics.Commit().has_value());
  ASSERT_TRUE(state.Commit().has_value());

  auto reader = Reader::Open(folder);
  const auto events = reader->Events(run.job, 0, 100, 100).value();
  std::vector<uint64_t> numbers;
  numbers.reserve(events.size());
  for (const auto& event : events) numbers.push_back(event.number);
  EXPECT_THAT(numbers, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(*reader->Events(run.job, 1, 3, 100), SizeIs(2));
  EXPECT_THAT(*reader->Events(run.job, 0, 100, 3), SizeIs(3));
  EXPECT_EQ(*reader->LastEventNumber(run.job), 4u);
  EXPECT_EQ((*reader->Latest(run.job, EventKind::kEpoch))->payload, "e");
  EXPECT_THAT(*reader->History(run.job), SizeIs(2));
}

TEST(LogFormat, KeepsEveryByteOfALine) {
  const StoredLine line{7, -5, true, "tab\there, back\\slash, two\nlines, \r"};
  const std::string text = EncodeLine(line);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(DecodeLine(std::string_view(text).substr(0, text.size() - 1)), line);
  EXPECT_EQ(DecodeLine("no line"), std::nullopt);
}

TEST_F(StoreTest, RankTimesAreStoredNowAndThenByThisMachinesClock) {
  const auto state = OpenState();  // without which nobody reads
  auto metrics = OpenMetrics();
  const RunKey run{JobId(1), Generation(1)};
  const Instant begin(std::chrono::hours(1));
  const auto note = [&](uint32_t rank, uint64_t step, Duration after) {
    metrics.NoteRankTimes(run, rank, step, begin + after, {.own_seconds = 1, .wait_seconds = 0, .steps = 1});
    return metrics.HasWrites();
  };
  for (uint64_t step = 1; step < 10; ++step) {
    for (const uint32_t rank : {0u, 1u})
      EXPECT_FALSE(note(rank, step, std::chrono::seconds(step))) << "rank " << rank << ", step " << step;
  }
  EXPECT_TRUE(note(0, 10, std::chrono::seconds(11)));
  ASSERT_TRUE(metrics.Commit());
  EXPECT_FALSE(note(1, 10, std::chrono::seconds(11)));
  const auto stored = Reader::Open(folder)->RankTimes(JobId(1));
  ASSERT_TRUE(stored.has_value());
  EXPECT_THAT(*stored, SizeIs(10));
}

/// The logs' writer, opened anew by Reopen() as after a crash.
struct LogTest : StoreTest {
  void SetUp() override {
    StoreTest::SetUp();
    Reopen();
  }
  void Reopen(uint64_t kept = 1 << 20) {
    logs.reset();
    metrics.reset();
    metrics = std::make_unique<MetricsStore>(OpenMetrics());
    logs = std::make_unique<LogStore>(folder / "logs", kept, metrics.get());
    kept_bytes = kept;
  }
  uint64_t Append(const std::vector<StoredLine>& lines) { return logs->Append(kStream, lines).value(); }
  void Store() {
    ASSERT_TRUE(logs->Flush().has_value());
    ASSERT_TRUE(metrics->Commit().has_value());
    logs->Committed();
  }
  LogPosition Position() { return metrics->LogPositionOf(kStream).value(); }
  std::vector<StoredLine> ReadAll(uint64_t tail = 0) {
    const auto position = Position();
    auto cursor = TailCursor(folder / "logs", kStream, position, tail).value();
    std::vector<StoredLine> out;
    while (true) {
      auto lines = ReadLines(folder / "logs", kStream, position, cursor, 256).value();
      if (lines.empty()) return out;
      out.insert(out.end(), lines.begin(), lines.end());
    }
  }
  std::unique_ptr<MetricsStore> metrics;
  std::unique_ptr<LogStore> logs;
  uint64_t kept_bytes = 0;
};

TEST_F(LogTest, DropsDuplicatesAndRefusesGaps) {
  EXPECT_EQ(Append(Lines(1, 3)), 3u);
  EXPECT_EQ(Append(Lines(2, 5)), 5u);
  EXPECT_EQ(Append(Lines(7, 9)), 5u) << "line 6 is missing";
  Store();
  EXPECT_THAT(Numbers(ReadAll()), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(Numbers(ReadAll(2)), ElementsAre(4, 5));
}

TEST_F(LogTest, AGapThatTheAgentDeclaresIsTaken) {
  Append(Lines(1, 3));
  EXPECT_EQ(Append({{50, 50, true, "[imgagent] 47 lines are missing here (4 to 50)"}}), 50u);
  EXPECT_EQ(Append(Lines(51, 52)), 52u);
  Store();
  EXPECT_THAT(Numbers(ReadAll()), ElementsAre(1, 2, 3, 50, 51, 52));
  EXPECT_THAT(Numbers(ReadAll(4)), ElementsAre(3, 50, 51, 52));
}

TEST_F(LogTest, WhatWasWrittenButNotCommittedIsCutOff) {
  Append(Lines(1, 3));
  Store();
  Append(Lines(4, 6));
  ASSERT_TRUE(logs->Flush().has_value());  // and then the daemon dies
  Reopen();
  EXPECT_THAT(Numbers(ReadAll()), ElementsAre(1, 2, 3));
  EXPECT_EQ(Append(Lines(4, 5, "again")), 5u);
  Store();
  EXPECT_THAT(Numbers(ReadAll()), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(ReadAll()[3].text, "again");
}

TEST_F(LogTest, ABatchThatFailsLeavesNothing) {
  Append(Lines(1, 3));
  Store();
  Append(Lines(4, 6));
  ASSERT_TRUE(logs->Flush().has_value());
  logs->Rollback();
  metrics->Rollback();
  EXPECT_EQ(Append(Lines(4, 4)), 4u);
  Store();
  EXPECT_THAT(Numbers(ReadAll()), ElementsAre(1, 2, 3, 4));
}

TEST_F(LogTest, TheOldestLinesGoAndTheLogSaysSo) {
  Reopen(400);
  for (uint64_t n = 1; n <= 60; ++n) {
    Append(Lines(n, n));
    Store();
  }
  const auto lines = ReadAll();
  ASSERT_THAT(lines, testing::Not(IsEmpty()));
  EXPECT_THAT(lines.front().text, HasSubstr("[imgd: lines 1 to "));
  EXPECT_EQ(lines.back().number, 60u);
  for (size_t i = 1; i < lines.size(); ++i) EXPECT_EQ(lines[i].number, lines[i - 1].number + 1);
  uint64_t bytes = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder / "logs")) {
    if (file.is_regular_file()) bytes += file.file_size();
  }
  EXPECT_LE(bytes, 2 * kept_bytes);
  // A tail that goes over the border of two files.
  EXPECT_THAT(Numbers(ReadAll(20)), SizeIs(20));
  EXPECT_EQ(ReadAll(20).front().number, 41u);
}

/// Writes until it is killed; tells each number once it is durable.
[[noreturn]] void WriteForever(const std::filesystem::path& folder, int acknowledge) {
  auto state = StateStore::Open(folder);
  auto metrics = MetricsStore::Open(folder);
  if (!state || !metrics) ::_exit(1);
  LogStore logs(folder / "logs", 1 << 20, &*metrics);
  uint64_t next = state->Load(0)->next_job.value();
  for (;; ++next) {
    state->SaveJob(MakeJob(next));
    const uint64_t last = logs.Append(kStream, {}).value();
    if (!logs.Append(kStream, Lines(last + 1, last + 3))) ::_exit(1);
    if (!logs.Flush() || !metrics->Commit()) ::_exit(1);
    logs.Committed();
    if (!state->Commit()) ::_exit(1);
    const uint64_t told[2] = {next, last + 3};
    if (::write(acknowledge, told, sizeof told) != sizeof told) ::_exit(1);
  }
}

TEST_F(LogTest, NothingAcknowledgedIsLostByKill9) {
  logs.reset();
  metrics.reset();
  uint64_t told[2] = {0, 0};
  for (int round = 0; round < 15; ++round) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) WriteForever(folder, pipe[1]);
    ::close(pipe[1]);
    // Killed at a moment of its own, after some acknowledgements.
    for (int i = 0; i < 3 + round * 2; ++i) {
      ASSERT_EQ(::read(pipe[0], told, sizeof told), static_cast<ssize_t>(sizeof told));
    }
    ::kill(child, SIGKILL);
    while (::read(pipe[0], told, sizeof told) == static_cast<ssize_t>(sizeof told)) {
    }
    ::close(pipe[0]);
    ::waitpid(child, nullptr, 0);

    auto state = OpenState();
    for (uint64_t id = 1; id <= told[0]; ++id) {
      ASSERT_TRUE(state.FindJob(JobId(id))->has_value()) << "job " << id << " was acknowledged";
    }
    Reopen();
    const auto lines = ReadAll();
    ASSERT_GE(lines.size(), told[1]);
    for (size_t i = 0; i < lines.size(); ++i) ASSERT_EQ(lines[i].number, i + 1) << "doubled or missing";
    logs.reset();
    metrics.reset();
  }
}

}  // namespace
}  // namespace imgd
