#include "server/store/backup.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "server/store/archive.h"
#include "server/store/log_store.h"
#include "server/store/reader.h"
#include "server/store/restore.h"
#include "server/store/sql.h"
#include "server/store/state_folder.h"
#include "server/store/state_store.h"

namespace imgd {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr WallTime kMade{1'790'000'000'000'000};
constexpr WallTime kLater{kMade.micros + 60'000'000};
constexpr Generation kThird(3);

mode_t ModeOf(const fs::path& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 ? facts.st_mode & 0777 : 0;
}

void WriteText(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// A state folder with two jobs, and where its backup goes.
struct BackupTest : testing::Test {
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    root = fs::path(testing::TempDir()) / fmt::format("imgd_backup_{}_{}", info->name(), ::getpid());
    fs::remove_all(root);
    fs::create_directories(folder());
    state = std::make_unique<StateStore>(std::move(*StateStore::Open(folder())));
    metrics = std::make_unique<MetricsStore>(std::move(*MetricsStore::Open(folder())));
    state->SaveJob({.id = JobId(1),
                    .name = "runs",
                    .owner = "ada",
                    .state = JobState::kRunning,
                    .reason = {ReasonCode::kAllRanksStarted, "trains"},
                    .generation = kThird});
    state->SaveJob({.id = JobId(2), .name = "done", .owner = "ada", .state = JobState::kCompleted});
    state->AppendDecision(41, {.reason = {ReasonCode::kNodeJoined, "node a has joined"}});
    metrics->AppendEvent({.run = {JobId(1), kThird}, .number = 77, .sequence = 5});
    ASSERT_TRUE(metrics->Commit() && state->Commit());
    WriteText(folder() / "ca.key", "the key");
  }
  void TearDown() override {
    state.reset();
    metrics.reset();
    fs::remove_all(root);
  }

  fs::path folder() const { return root / "imgd"; }
  fs::path file() const { return root / "backup.tar"; }
  fs::path other() const { return root / "other"; }

  void MakeBackup() {
    auto source = BackupSource::Make(folder(), "1.2.3", kMade);
    ASSERT_TRUE(source.has_value()) << source.error().message;
    std::ofstream out(file(), std::ios::binary);
    while (true) {
      const auto piece = source->Next();
      ASSERT_TRUE(piece.has_value()) << piece.error().message;
      if (piece->empty()) break;
      out << *piece;
    }
  }
  Result<Restored> RestoreInto(const fs::path& to, bool replace = false, WallTime now = kLater) {
    return RestoreBackup({.file = file(), .state_dir = to, .replace = replace, .now = now});
  }
  std::string Refusal(const Result<Restored>& result) {
    return result ? "it was restored" : result.error().ToString();
  }

  fs::path root;
  std::unique_ptr<StateStore> state;
  std::unique_ptr<MetricsStore> metrics;
};

TEST_F(BackupTest, WhatWasStoredComesBack) {
  MakeBackup();
  EXPECT_FALSE(fs::exists(folder() / "backup.tmp"));
  const auto restored = RestoreInto(other());
  ASSERT_TRUE(restored.has_value()) << restored.error().ToString();
  EXPECT_EQ(restored->made, kMade);
  EXPECT_EQ(restored->version, "1.2.3");
  EXPECT_EQ(ModeOf(other() / "state.db"), 0600u);
  EXPECT_EQ(ModeOf(other() / "ca.key"), 0600u);
  EXPECT_FALSE(fs::exists(other() / "restore.tmp"));
  EXPECT_FALSE(fs::exists(other() / kHalfRestored));
  auto opened = StateStore::Open(other());
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  EXPECT_EQ(opened->cluster_id(), state->cluster_id());
  const auto job = opened->FindJob(JobId(1));
  ASSERT_TRUE(job && *job);
  EXPECT_EQ((*job)->generation, kThird);
}

TEST_F(BackupTest, ItIsOfOneMomentWhateverIsWrittenMeanwhile) {
  auto source = BackupSource::Make(folder(), "1.2.3", kMade);
  ASSERT_TRUE(source.has_value());
  state->SaveJob({.id = JobId(3), .name = "late", .owner = "ada"});
  ASSERT_TRUE(state->Commit());
  std::ofstream out(file(), std::ios::binary);
  for (auto piece = source->Next(); piece && !piece->empty(); piece = source->Next()) out << *piece;
  out.close();
  ASSERT_TRUE(RestoreInto(other()));
  EXPECT_FALSE(StateStore::Open(other())->FindJob(JobId(3))->has_value());
}

TEST_F(BackupTest, OneThatIsBrokenOffLeavesNothing) {
  for (int pieces = 0; pieces < 2; ++pieces) {  // in the first database, and in the second
    const auto source =
        BackupSource::Make(folder(), "1.2.3", kMade, [left = pieces]() mutable { return left-- == 0; });
    ASSERT_FALSE(source.has_value());
    EXPECT_EQ(source.error().code, ErrorCode::kCancelled);
    EXPECT_THAT(source.error().message, HasSubstr(pieces == 0 ? "state.db" : "metrics.db"));
    EXPECT_FALSE(fs::exists(folder() / kBackupStaging));
  }
  MakeBackup();
  EXPECT_TRUE(RestoreInto(other()));
}

TEST_F(BackupTest, NumbersGoOnBeyondAnyThatMayHaveBeenGivenOut) {
  MakeBackup();
  const auto restored = RestoreInto(other());
  ASSERT_TRUE(restored.has_value()) << restored.error().ToString();
  EXPECT_EQ(restored->next_job, JobId(2 + 10'000 + 10 * 61 + 1));
  EXPECT_EQ(restored->first_generation, Generation(3 + 10'000 + 61));
  auto opened = StateStore::Open(other());
  const auto stored = opened->Load(10);
  EXPECT_EQ(stored->next_job, restored->next_job);
  EXPECT_EQ(stored->first_generation, restored->first_generation);
  EXPECT_GT(*opened->LastDecision(), 1'000'000u);
  EXPECT_GT(*opened->LastEventNumber(JobId(1)), 1'000'077u);
  EXPECT_EQ(*opened->LastEventNumber(JobId(2)), 0u) << "it has ended";
}

TEST_F(BackupTest, ASecondRestoreOfTheSameFileIsBeyondTheFirst) {
  MakeBackup();
  const auto first = RestoreInto(other());
  const auto second = RestoreInto(other(), true, {kLater.micros + 10'000'000});
  ASSERT_TRUE(first && second) << Refusal(second);
  EXPECT_GE(second->next_job.value(), first->next_job.value() + 100) << "10 a second since then";
  EXPECT_GE(second->first_generation.value(), first->first_generation.value() + 10);
}

TEST_F(BackupTest, TheEventsOfBeforeStayAlthoughTheirNumbersAreFarBehind) {
  MakeBackup();
  ASSERT_TRUE(RestoreInto(other()));
  auto opened = StateStore::Open(other());
  ASSERT_TRUE(opened->TrimDecisions(100, {0}));
  ASSERT_TRUE(opened->Commit());
  ASSERT_TRUE(MetricsStore::Open(other()).has_value());
  auto decisions = Reader::Open(other())->Decisions({.last = 1'000'000'000'000});
  ASSERT_TRUE(decisions.has_value());
  ASSERT_EQ(decisions->size(), 2u);
  EXPECT_EQ((*decisions)[0].number, 41u);
  EXPECT_THAT((*decisions)[1].text, HasSubstr("imgd was restored from its backup of 2026-09-21"));
}

TEST_F(BackupTest, AFolderThatHoldsAStateIsLeftAloneUnlessToldOtherwise) {
  MakeBackup();
  EXPECT_THAT(Refusal(RestoreInto(folder())), HasSubstr("holds a state already (with --replace"));
  state->SaveJob({.id = JobId(3), .name = "late", .owner = "ada"});
  ASSERT_TRUE(state->Commit());
  fs::create_directories(folder() / "logs/1/3");
  fs::create_directories(folder() / "logs/3/1");
  state.reset();
  metrics.reset();
  const auto restored = RestoreInto(folder(), true);
  ASSERT_TRUE(restored.has_value()) << restored.error().ToString();
  EXPECT_TRUE(fs::exists(folder() / "logs/1/3"));
  EXPECT_FALSE(fs::exists(folder() / "logs/3")) << "the backup does not know job 3";
  EXPECT_TRUE(fs::exists(restored->set_aside / "logs/3/1"));
  EXPECT_EQ(ModeOf(restored->set_aside), 0700u);
  EXPECT_TRUE(StateStore::Open(restored->set_aside)->FindJob(JobId(3))->has_value())
      << "what was there is kept";
  EXPECT_FALSE(StateStore::Open(folder())->FindJob(JobId(3))->has_value());
}

/// What a folder's state is: each of its files says so by itself.
std::string StateIn(const fs::path& folder) {
  auto state = StateStore::Open(folder);
  auto metrics = MetricsStore::Open(folder);
  if (!state || !metrics) return "it can't be opened";
  std::string out = state->FindJob(JobId(3))->has_value() ? "late" : "early";
  out += *metrics->LastEventNumber(JobId(3)) > 0 ? " late" : " early";
  out += " " + ReadFile(folder / "ca.key").value_or("none");
  for (const char* log : {"logs/1/3", "logs/3/1"}) out += fs::exists(folder / log) ? " log" : " -";
  return out;
}

/// A restore over a later state that is broken off before its step number `last`.
struct BrokenOff : BackupTest {
  void SetUp() override {
    BackupTest::SetUp();
    MakeBackup();
    state->SaveJob({.id = JobId(3), .name = "late", .owner = "ada"});
    metrics->AppendEvent({.run = {JobId(3), Generation(1)}, .number = 5, .sequence = 1});
    ASSERT_TRUE(metrics->Commit() && state->Commit());
    WriteText(folder() / "ca.key", "other");
    fs::create_directories(folder() / "logs/1/3");
    fs::create_directories(folder() / "logs/3/1");
    // With its write-ahead log, as a kill leaves it.
    fs::copy(folder(), root / "killed", fs::copy_options::recursive);
    ASSERT_TRUE(fs::exists(root / "killed/state.db-wal"));
    state.reset();
    metrics.reset();
  }
  static BeforeStep Until(size_t last) {
    return [left = last]() mutable -> Status {
      if (left-- > 0) return {};
      return Fail(ErrorCode::kInternal, "killed");
    };
  }
  Result<Restored> Restore(size_t last) {
    return RestoreBackup(
        {.file = file(), .state_dir = other(), .replace = true, .now = kLater, .before_step = Until(last)});
  }
  void Renew() {
    fs::remove_all(other());
    fs::copy(root / "killed", other(), fs::copy_options::recursive);
  }
  static constexpr const char* kOld = "late late other log log";
  static constexpr const char* kNew = "early early the key log -";
};

TEST_F(BrokenOff, AnywhereItLeavesOneOfTheTwoWhole) {
  size_t olds = 0;
  size_t news = 0;
  for (size_t step = 0;; ++step) {
    Renew();
    if (Restore(step)) break;
    const bool begun = fs::exists(other() / kHalfRestored);
    ASSERT_TRUE(FinishInstall(other()).has_value()) << step;  // as imgd does before it starts
    EXPECT_EQ(StateIn(other()), begun ? kNew : kOld) << step;
    EXPECT_FALSE(fs::exists(other() / kHalfRestored)) << step;
    EXPECT_FALSE(fs::exists(other() / kRestoreStaging)) << step;
    ++(begun ? news : olds);
  }
  EXPECT_EQ(StateIn(other()), kNew);
  EXPECT_GE(olds, 1u);
  EXPECT_GT(news, 10u);
}

TEST_F(BrokenOff, WhatFinishesItMayBeBrokenOffToo) {
  Renew();
  ASSERT_FALSE(Restore(2));
  size_t tries = 0;
  while (!FinishInstall(other(), Until(1))) ASSERT_LT(++tries, 100u);
  EXPECT_GT(tries, 5u);
  EXPECT_EQ(StateIn(other()), kNew);
}

TEST_F(BrokenOff, AnotherRestoreFinishesItFirst) {
  for (const size_t step : {3u, 9u, 13u, 15u}) {
    Renew();
    ASSERT_FALSE(Restore(step));
    ASSERT_TRUE(fs::exists(other() / kHalfRestored));
    const auto again = Restore(1000);
    ASSERT_TRUE(again.has_value()) << again.error().ToString();
    EXPECT_EQ(StateIn(other()), kNew) << step;
    EXPECT_EQ(StateIn(again->set_aside), "early early the key - -") << "of the first restore, whole";
  }
}

TEST_F(BrokenOff, WhatAFullDiskLeftIsGone) {
  Renew();
  fs::create_directories(other() / kBackupStaging);
  WriteText(other() / kBackupStaging / "state.db", "some");
  fs::create_directories(other() / kRestoreStaging);
  ASSERT_EQ(FinishInstall(other()), fs::path());
  EXPECT_FALSE(fs::exists(other() / kBackupStaging));
  EXPECT_FALSE(fs::exists(other() / kRestoreStaging));
  EXPECT_EQ(StateIn(other()), kOld);
}

TEST_F(BackupTest, AFolderInUseIsRefused) {
  MakeBackup();
  const auto lock = LockStateFolder(folder());
  EXPECT_THAT(Refusal(RestoreInto(folder(), true)), HasSubstr("another imgd uses"));
}

TEST_F(BackupTest, ADamagedFileIsRefusedAndLeavesNothing) {
  MakeBackup();
  std::string bytes = *ReadFile(file());
  const size_t middle = bytes.find("trains");
  ASSERT_NE(middle, std::string::npos);
  bytes[middle] = 'T';
  WriteText(file(), bytes);
  EXPECT_THAT(Refusal(RestoreInto(other())), HasSubstr("is damaged"));
  WriteText(file(), bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT(Refusal(RestoreInto(other())), HasSubstr("is cut short"));
  WriteText(file(), std::string(4096, 'x'));
  EXPECT_THAT(Refusal(RestoreInto(other())), HasSubstr("is no backup of imgd"));
  EXPECT_FALSE(fs::exists(other() / "state.db"));
  EXPECT_FALSE(fs::exists(other() / "restore.tmp"));
}

TEST_F(BackupTest, AFileWithAPathInItIsRefused) {
  WriteText(file(), TarHeader("../evil", 1, 0) + "x" + TarPadding(1) + TarEnd());
  EXPECT_THAT(Refusal(RestoreInto(other())), HasSubstr("it has a file '../evil'"));
  EXPECT_FALSE(fs::exists(root / "evil"));
}

TEST_F(BackupTest, ABackupOfANewerImgdIsRefusedWithWords) {
  {
    auto database = Database::OpenForWriting(folder() / "state.db", StateMigrations());
    ASSERT_TRUE(database->Guard([&] { database->Execute("PRAGMA user_version=999"); }));
  }
  MakeBackup();
  EXPECT_THAT(Refusal(RestoreInto(other())), HasSubstr("was written by a newer imgd: its schema is 999"));
}

TEST_F(BackupTest, AClockBehindTheBackupIsRefused) {
  MakeBackup();
  EXPECT_THAT(Refusal(RestoreInto(other(), false, {kMade.micros - 5'000'000})), HasSubstr("set the clock"));
}

TEST_F(BackupTest, ALogWhoseFileIsNotThereGoesOnInAnother) {
  const LogStream stream{{JobId(1), kThird}, 0};
  metrics->SaveLogPosition(stream, {.last_line = 9, .segment = 0, .segment_bytes = 500});
  ASSERT_TRUE(metrics->Commit());
  MakeBackup();
  ASSERT_TRUE(RestoreInto(other()));
  auto restored = MetricsStore::Open(other());
  const auto position = restored->LogPositionOf(stream);
  EXPECT_EQ(position->last_line, 9u);
  EXPECT_EQ(position->segment, 1u);
  EXPECT_EQ(position->segment_bytes, 0u);
}

TEST(Archive, ASizeOfManyGigabytesIsKept) {
  const auto path = fs::path(testing::TempDir()) / fmt::format("imgd_archive_{}", ::getpid());
  WriteText(path, TarHeader("large", uint64_t{9} << 30, 1));
  std::vector<std::pair<std::string, uint64_t>> seen;
  const auto read = ReadTar(
      path,
      [&seen](const std::string& name, uint64_t size) -> Status {
        seen.emplace_back(name, size);
        return {};
      },
      [](std::string_view) -> Status { return {}; });
  EXPECT_FALSE(read.has_value()) << "it is cut short";
  EXPECT_THAT(seen, ElementsAre(std::pair(std::string("large"), uint64_t{9} << 30)));
  fs::remove(path);
}

/// An older schema with something in it.
struct OlderSchema : BackupTest {
  static std::vector<Migration> First(size_t count) {
    return {StateMigrations().begin(), StateMigrations().begin() + static_cast<std::ptrdiff_t>(count)};
  }
  fs::path path() const { return root / "old.db"; }
};

TEST_F(OlderSchema, IsCopiedBeforeItIsChanged) {
  {
    auto old = Database::OpenForWriting(path(), First(5));
    ASSERT_TRUE(
        old->Guard([&] { old->Execute("INSERT INTO meta (key, value) VALUES ('cluster_id', 'abc')"); }));
  }
  EXPECT_FALSE(fs::exists(root / "old.db.schema-5")) << "a new file is no older one";
  ASSERT_TRUE(Database::OpenForWriting(path(), First(6)).has_value());
  EXPECT_EQ(ModeOf(root / "old.db.schema-5"), 0600u);
  ASSERT_TRUE(Database::OpenForWriting(path(), First(8)).has_value());
  EXPECT_FALSE(fs::exists(root / "old.db.schema-5")) << "the newest copy is enough";
  auto copy = Database::OpenForReading(root / "old.db.schema-6");
  ASSERT_TRUE(copy.has_value());
  const auto value = copy->Guard([&] {
    auto& query = copy->Prepare("SELECT value FROM meta WHERE key = 'cluster_id'");
    return query.executeStep() ? query.getColumn(0).getString() : std::string();
  });
  EXPECT_EQ(*value, "abc");
}

TEST_F(OlderSchema, IsNotChangedWhereTheCopyCannotBeMade) {
  ASSERT_TRUE(Database::OpenForWriting(path(), First(5)).has_value());
  fs::create_directories(root / "old.db.schema-5/full");
  WriteText(root / "old.db.schema-4", "an older copy");
  const auto opened = Database::OpenForWriting(path(), First(6));
  ASSERT_FALSE(opened.has_value());
  EXPECT_THAT(opened.error().message, HasSubstr("changed only after a copy was made"));
  EXPECT_TRUE(fs::exists(root / "old.db.schema-4"));
  EXPECT_FALSE(fs::exists(root / "old.db.schema-5.new"));
}

TEST_F(OlderSchema, StaysWithItsCopyWhereALaterStepFails) {
  ASSERT_TRUE(Database::OpenForWriting(path(), First(5)).has_value());
  WriteText(root / "old.db.schema-5.new", "broken off");
  auto bad = First(7);
  bad.back().sql = "CREATE TABLE jobs (id);";  // which is there
  for (int tries = 0; tries < 2; ++tries) {
    const auto opened = Database::OpenForWriting(path(), bad);
    ASSERT_FALSE(opened.has_value());
    EXPECT_THAT(opened.error().message, HasSubstr(fmt::format("migration {}: ", bad.back().name)));
    EXPECT_TRUE(fs::exists(root / "old.db.schema-5"));
    EXPECT_FALSE(fs::exists(root / "old.db.schema-5.new"));
  }
  const auto older = Database::OpenForWriting(path(), First(5));
  ASSERT_TRUE(older.has_value()) << older.error().message;
  const auto copy = Database::OpenForWriting(root / "old.db.schema-5", First(5));
  EXPECT_TRUE(copy.has_value()) << copy.error().message;
}

}  // namespace
}  // namespace imgd
