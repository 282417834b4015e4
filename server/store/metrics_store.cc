#include "server/store/metrics_store.h"

#include <fmt/format.h>

#include <cstdlib>

#include "server/store/history.h"
#include "server/store/sizes.h"
#include "server/store/sql.h"

namespace imgd {
namespace {

/// Who watches a job and was away for a while goes on without a gap.
constexpr size_t kSealedKept = 4096;
/// Of figures of classes, and of pictures.
constexpr size_t kLargeKept = 3;

void KeepNewest(Database& database, JobId job, EventKind kind, size_t most) {
  RunSql(database,
         "DELETE FROM events WHERE job = ?1 AND kind = ?2 AND number <= (SELECT number FROM events WHERE "
         "job = ?1 AND kind = ?2 ORDER BY number DESC LIMIT 1 OFFSET ?3)",
         Signed(job.value()), static_cast<int>(kind), Signed(most));
}

uint64_t CountUnsealed(Database& database, JobId job) {
  auto& query = database.Prepare(
      "SELECT count(*) FROM events WHERE job = ?1 AND kind = ?2 AND number > "
      "(SELECT coalesce(max(last_number), 0) FROM history_runs WHERE job = ?1)");
  BindAll(query, 1, Signed(job.value()), static_cast<int>(EventKind::kStep));
  query.executeStep();
  const uint64_t count = Unsigned(query.getColumn(0));
  query.reset();
  return count;
}

}  // namespace

MetricsStore::MetricsStore(Database database)
    : database_(std::make_unique<Database>(std::move(database))),
      batch_(std::make_unique<WriteBatch>(*database_)) {}

Result<MetricsStore> MetricsStore::Open(const std::filesystem::path& folder) {
  IMGD_ASSIGN(auto database, Database::OpenForWriting(folder / "metrics.db", MetricsMigrations()));
  return MetricsStore(std::move(database));
}

void MetricsStore::AppendEvent(const MetricEvent& event) {
  batch_->Write([&event](Database& database) {
    auto& statement = database.Prepare(
        "INSERT INTO events VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (job, generation, rank, sequence) DO "
        "NOTHING");
    BindAll(statement, 1, Signed(event.run.job.value()), Signed(event.number),
            Signed(event.run.generation.value()), event.rank, Signed(event.sequence),
            static_cast<int>(event.kind), event.time_us);
    statement.bind(8, event.payload.data(), static_cast<int>(event.payload.size()));
    statement.exec();
    statement.reset();
  });
  if (event.kind == EventKind::kRankExit) {
    StoreRankTimes(event.run.job);
    live_ranks_.erase(event.run.job);
  }
  if (event.kind == EventKind::kClasses || event.kind == EventKind::kSamples) {
    batch_->Write(
        [&event](Database& database) { KeepNewest(database, event.run.job, event.kind, kLargeKept); });
  }
  if (event.kind != EventKind::kStep) return;
  batch_->Write([&](Database& database) {
    const JobId job = event.run.job;
    auto known = unsealed_.find(job);
    // Those that were stored before this daemon began, and those of this batch so far.
    if (known == unsealed_.end()) known = unsealed_.emplace(job, CountUnsealed(database, job)).first;
    if (++known->second < kPieceValues) return;
    SealReports(database, job);
    DropSealed(database, job, kSealedKept);
    known->second = CountUnsealed(database, job);
  });
}

void MetricsStore::NoteRankTimes(RunKey run, uint32_t rank, uint64_t step, Instant now, const RankCell& did) {
  constexpr auto kStoredEvery = std::chrono::seconds(10);
  auto known = live_ranks_.find(run.job);
  if (known == live_ranks_.end()) {
    const auto stored = database_->Guard([&] { return LoadRankTimes(*database_, run.job); });
    if (!stored) return Fail(stored.error());
    known = live_ranks_.emplace(run.job, LiveRanks{RankTimes(*stored), now}).first;
  }
  LiveRanks& live = known->second;
  live.times.Add(run.generation, rank, step, did);
  if (now - live.stored < kStoredEvery) return;
  live.stored = now;
  StoreRankTimes(run.job);
}

void MetricsStore::StoreRankTimes(JobId job) {
  const auto live = live_ranks_.find(job);
  if (live == live_ranks_.end()) return;
  const auto changes = live->second.times.TakeChanges();
  if (changes.stretches.empty()) return;
  batch_->Write([&](Database& database) { SaveRankTimes(database, job, changes); });
}

Status MetricsStore::Commit() {
  auto done = batch_->Commit();
  if (!done) ForgetWhatIsNotStored();
  return done;
}

void MetricsStore::Rollback() {
  batch_->Rollback();
  ForgetWhatIsNotStored();
}

/// It is read anew, from what is stored.
void MetricsStore::ForgetWhatIsNotStored() {
  unsealed_.clear();
  live_ranks_.clear();
}

void MetricsStore::RemoveJob(JobId job) {
  unsealed_.erase(job);
  live_ranks_.erase(job);
  batch_->Write([job](Database& database) {
    for (const char* table : {"events", "history", "history_runs", "log_streams", "rank_times"})
      RunSql(database, fmt::format("DELETE FROM {} WHERE job = ?", table), Signed(job.value()));
  });
}

void MetricsStore::RemoveFigures(JobId job) {
  unsealed_.erase(job);
  live_ranks_.erase(job);
  batch_->Write([job](Database& database) {
    for (const char* table : {"history", "history_runs", "rank_times"})
      RunSql(database, fmt::format("DELETE FROM {} WHERE job = ?", table), Signed(job.value()));
    for (const EventKind kind : kFigureKinds)
      RunSql(database, "DELETE FROM events WHERE job = ? AND kind = ?", Signed(job.value()),
             static_cast<int>(kind));
  });
}

void MetricsStore::RemoveLogs(JobId job) {
  batch_->Write([job](Database& database) {
    RunSql(database, "DELETE FROM log_streams WHERE job = ?", Signed(job.value()));
  });
}

void MetricsStore::SaveLogPosition(const LogStream& stream, const LogPosition& position) {
  batch_->Write([&](Database& database) {
    RunSql(database, "INSERT OR REPLACE INTO log_streams VALUES (?,?,?,?,?,?)",
           Signed(stream.run.job.value()), Signed(stream.run.generation.value()), stream.rank,
           Signed(position.last_line), Signed(position.segment), Signed(position.segment_bytes));
  });
}

Result<uint64_t> MetricsStore::LastEventNumber(JobId job) {
  return database_->Guard([&] {
    auto& query = database_->Prepare("SELECT coalesce(max(number), 0) FROM events WHERE job = ?");
    query.bind(1, Signed(job.value()));
    query.executeStep();
    const uint64_t number = Unsigned(query.getColumn(0));
    query.reset();
    return number;
  });
}

Result<LogPosition> MetricsStore::LogPositionOf(const LogStream& stream) {
  return database_->Guard([&] {
    auto& query = database_->Prepare(
        "SELECT last_line, segment, segment_bytes FROM log_streams WHERE job = ? AND generation = ? AND rank "
        "= ?");
    BindAll(query, 1, Signed(stream.run.job.value()), Signed(stream.run.generation.value()), stream.rank);
    LogPosition position;
    if (query.executeStep()) {
      position = {Unsigned(query.getColumn(0)), Unsigned(query.getColumn(1)), Unsigned(query.getColumn(2))};
    }
    query.reset();
    return position;
  });
}

Result<std::map<JobId, uint64_t>> MetricsStore::LogSizes(uint64_t segment_bytes) {
  return database_->Guard([&] { return LogSizesOf(*database_, segment_bytes); });
}

Result<bool> MetricsStore::HasFigures(JobId job) {
  return database_->Guard([&] { return FigureBytesOf(*database_, job) > 0; });
}

Result<uint64_t> MetricsStore::UsedBytes() {
  return database_->Guard([&] { return UsedBytesOf(*database_); });
}

Result<std::map<uint32_t, uint64_t>> MetricsStore::LastLines(RunKey run) {
  return database_->Guard([&] {
    auto& query =
        database_->Prepare("SELECT rank, last_line FROM log_streams WHERE job = ? AND generation = ?");
    BindAll(query, 1, Signed(run.job.value()), Signed(run.generation.value()));
    std::map<uint32_t, uint64_t> out;
    while (query.executeStep()) out[query.getColumn(0).getUInt()] = Unsigned(query.getColumn(1));
    query.reset();
    return out;
  });
}

}  // namespace imgd
