#include "server/store/sql.h"
#include "server/store/state_store.h"

/// The part of state.db's writing by which jobs go.
namespace imgd {

void StateStore::DeleteJob(JobId job) {
  batch_->Write([job](Database& database) {
    const int64_t id = Signed(job.value());
    RunSql(database,
           "INSERT OR REPLACE INTO meta (key, value) SELECT 'last_deleted_job', max(?1, (SELECT "
           "coalesce(max(value + 0), 0) FROM meta WHERE key = 'last_deleted_job'))",
           id);
    RunSql(
        database,
        "DELETE FROM sweep_results WHERE sweep = (SELECT sweep FROM jobs WHERE id = ?1 AND sweep <> 0) AND "
        "job = ?1",
        id);
    RunSql(
        database,
        "DELETE FROM sweeps WHERE id = (SELECT sweep FROM jobs WHERE id = ?1 AND sweep <> 0) AND NOT EXISTS "
        "(SELECT 1 FROM jobs WHERE sweep = sweeps.id AND id <> ?1)",
        id);
    RunSql(database, "DELETE FROM jobs WHERE id = ?", id);
    for (const char* table : {"job_files", "job_events", "checkpoints", "idempotency_keys", "event_streams",
                              "placements", "decisions", "notices", "job_notify"})
      RunSql(database, fmt::format("DELETE FROM {} WHERE job = ?", table), id);
  });
}

Result<std::vector<EndedJob>> StateStore::EndedJobs(EndedJob from, WallTime until, size_t most) {
  return database_->Guard([&] {
    auto& query = database_->Prepare(
        "SELECT ended_us, id FROM jobs WHERE state IN (6, 7, 8) AND (ended_us, id) > (?, ?) AND ended_us < ? "
        "ORDER BY ended_us, id LIMIT ?");
    BindAll(query, 1, from.ended_us, Signed(from.id.value()), until.micros, Signed(most));
    std::vector<EndedJob> out;
    while (query.executeStep())
      out.push_back({query.getColumn(0).getInt64(), JobId(Unsigned(query.getColumn(1)))});
    query.reset();
    return out;
  });
}

Result<std::set<JobId>> StateStore::JobIds() {
  return database_->Guard([this] {
    std::set<JobId> out;
    auto& query = database_->Prepare("SELECT id FROM jobs");
    while (query.executeStep()) out.insert(JobId(Unsigned(query.getColumn(0))));
    query.reset();
    return out;
  });
}

}  // namespace imgd
