#include <gmock/gmock.h>
#include <sqlite3.h>
#include <unistd.h>

#include <filesystem>
#include <limits>

#include "server/store/reader.h"
#include "server/store/state_store.h"

namespace imgd {
namespace {

using testing::ContainsRegex;
using testing::Not;

constexpr int64_t kDay = 24LL * 3600 * 1'000'000;

struct DeletedJobs : testing::Test {
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder = std::filesystem::path(testing::TempDir()) /
             fmt::format("imgd_deleted_{}_{}", info->name(), ::getpid());
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    ASSERT_TRUE(MetricsStore::Open(folder).has_value());
    Open();
  }
  void TearDown() override {
    store.reset();
    std::filesystem::remove_all(folder);
  }
  void Open() {
    store.reset();
    auto opened = StateStore::Open(folder);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    store = std::make_unique<StateStore>(std::move(*opened));
  }
  void Took(uint64_t job, const std::string& owner, double device_seconds, double cost = 0) {
    store->SaveJob({.id = JobId(job),
                    .owner = owner,
                    .state = JobState::kCompleted,
                    .device_seconds = device_seconds,
                    .cost = cost});
  }
  /// A start of the job.
  void Ran(uint64_t job, uint64_t generation, int64_t from, int64_t to, std::vector<uint32_t> devices) {
    const auto change = [&](JobState before, JobState after, int64_t time) {
      store->AppendEvent(++number, {.job = JobId(job),
                                    .generation = Generation(generation),
                                    .from = before,
                                    .to = after,
                                    .time = {time}});
    };
    store->SavePlacement({JobId(job), Generation(generation)},
                         {{.node = NodeId("a"), .devices = std::move(devices)}});
    change(JobState::kQueued, JobState::kStarting, from);
    change(JobState::kStarting, JobState::kRunning, from + 1);
    change(JobState::kRunning, JobState::kQueued, to);
  }
  std::vector<StartUse> Left(int64_t since = 0) {
    EXPECT_TRUE(store->Commit());
    return Reader::Open(folder)->Starts(since).value();
  }

  std::filesystem::path folder;
  std::unique_ptr<StateStore> store;
  uint64_t number = 0;  ///< of the last event
};

TEST_F(DeletedJobs, WhatTheyTookStaysByTheirStarts) {
  Took(1, "ada", 700, 70);
  Ran(1, 1, kDay, kDay + 1000, {0, 1});
  Ran(1, 2, 3 * kDay - 500, 3 * kDay, {0});
  Took(2, "bob", 0);
  store->DeleteJob(JobId(1), {4 * kDay});
  store->DeleteJob(JobId(2), {4 * kDay});
  auto left = Left();
  ASSERT_EQ(left.size(), 2U) << "nothing of whom nothing was used";
  EXPECT_EQ(left[0].job, JobId());
  EXPECT_EQ(left[0].owner, "ada");
  EXPECT_EQ(left[0].started_us, kDay);
  EXPECT_EQ(left[0].ended_us, kDay + 1000);
  EXPECT_DOUBLE_EQ(left[0].device_seconds, 560) << "twice the ranks, twice as long";
  EXPECT_DOUBLE_EQ(left[1].device_seconds, 140);
  EXPECT_DOUBLE_EQ(left[1].cost, 14);
  EXPECT_EQ(Left(2 * kDay).size(), 1U);
  // What nobody can ask for any more goes.
  Took(3, "eve", 1);
  Ran(3, 1, 403 * kDay, 403 * kDay + 1, {0});
  store->DeleteJob(JobId(3), {404 * kDay});
  left = Left();
  ASSERT_EQ(left.size(), 2U);
  EXPECT_EQ(left[0].started_us, 3 * kDay - 500);
  EXPECT_EQ(left[1].owner, "eve");
}

TEST_F(DeletedJobs, AClockThatWasFarAheadTakesNoUseOfOthersAway) {
  Took(1, "ada", 700);
  Ran(1, 1, kDay, 2 * kDay, {0});
  Took(2, "bob", 700);
  Ran(2, 1, 30'000 * kDay, 30'001 * kDay, {0});
  store->DeleteJob(JobId(1), {3 * kDay});
  store->DeleteJob(JobId(2), {3 * kDay});
  EXPECT_EQ(Left().size(), 2U);
  Took(3, "eve", 1);
  Ran(3, 1, 403 * kDay, 404 * kDay, {0});
  store->DeleteJob(JobId(3), {404 * kDay});
  EXPECT_EQ(Left().size(), 2U) << "what is old by the right clock goes";
}

TEST_F(DeletedJobs, ASweepGoesWithTheLastOfItsJobs) {
  store->SaveSweep({.id = JobId(5), .name = "lr", .owner = "ada", .members = 3}, "name: lr\n");
  for (uint64_t id = 4; id <= 8; ++id) {
    const JobId sweep(id > 4 && id < 8 ? 5U : 0U);
    store->SaveJob({.id = JobId(id), .owner = "ada", .state = JobState::kCompleted, .sweep = sweep});
  }
  for (const uint64_t id : {5u, 7u, 8u}) {
    store->DeleteJob(JobId(id), {kDay});
    EXPECT_TRUE(store->FindSweep(JobId(5))->has_value()) << id;
  }
  store->DeleteJob(JobId(6), {kDay});
  EXPECT_FALSE(store->FindSweep(JobId(5))->has_value());
}

/// The statements that were begun on connections that are listened to.
std::vector<std::string>& Begun() {
  static std::vector<std::string> statements;
  return statements;
}

int NoteBegun(unsigned, void*, void* statement, void*) {
  Begun().emplace_back(sqlite3_sql(static_cast<sqlite3_stmt*>(statement)));
  return 0;
}

int ListenTo(sqlite3* connection, char**, const sqlite3_api_routines*) {
  return sqlite3_trace_v2(connection, SQLITE_TRACE_STMT, NoteBegun, nullptr);
}

TEST_F(DeletedJobs, AreFoundAndGoWithoutALookAtAllOthers) {
  const auto listen = reinterpret_cast<void (*)()>(ListenTo);
  ASSERT_EQ(sqlite3_auto_extension(listen), SQLITE_OK);
  Open();
  sqlite3_cancel_auto_extension(listen);
  Begun().clear();
  store->DeleteJob(JobId(1), {kDay});
  ASSERT_TRUE(store->EndedJobs({}, {std::numeric_limits<int64_t>::max()}, 50).has_value());
  const auto statements = Begun();
  EXPECT_GT(statements.size(), 10U);
  SQLite::Database file((folder / "state.db").string());
  for (const auto& sql : statements) {
    SQLite::Statement plan(file, "EXPLAIN QUERY PLAN " + sql);
    while (plan.executeStep())
      EXPECT_THAT(plan.getColumn(3).getString(), Not(ContainsRegex("^SCAN [a-z]|FOR ORDER BY"))) << sql;
  }
}

}  // namespace
}  // namespace imgd
