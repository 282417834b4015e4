#include "server/store/sql.h"
#include "server/store/state_store.h"

/// The part of state.db's writing by which jobs go.
namespace imgd {
namespace {

/// A job's use by its starts, each by its length and its ranks, as rpc/usage_over_time.cc lays it out.
constexpr const char* kKeepUseSql =
    "INSERT INTO use_of_deleted SELECT owner, device_seconds * weight / whole, cost * weight / whole, "
    "started, "
    "ended FROM (SELECT *, sum(weight) OVER () AS whole FROM (SELECT *, (ended - started) * max(ranks, 1) AS "
    "weight FROM (SELECT j.owner, j.device_seconds, j.cost, "
    "min(e.time_us) FILTER (WHERE e.to_state = 2) AS started, "
    "min(e.time_us) FILTER (WHERE e.from_state IN (2, 3, 4) AND e.to_state NOT IN (2, 3, 4)) AS ended, "
    "(SELECT coalesce(sum(p.ranks), 0) FROM placements p WHERE p.job = j.id AND p.generation = e.generation) "
    "AS "
    "ranks "
    "FROM jobs j JOIN job_events e ON e.job = j.id WHERE j.id = ?1 AND j.device_seconds > 0 "
    "GROUP BY e.generation) WHERE ended > started)) WHERE whole > 0";

/// As far back as use by day is asked for (kMostEdges of rpc/usage_over_time.cc), from the newest or, where a
/// clock was ahead, from now.
constexpr const char* kDropOldUseSql =
    "DELETE FROM use_of_deleted WHERE ended_us < (SELECT min(max(ended_us), ?) FROM use_of_deleted) - "
    "401 * 86400000000";

/// A sweep's members have the numbers from its own on.
constexpr const char* kDeleteSweepOfLastSql =
    "DELETE FROM sweeps WHERE id = (SELECT sweep FROM jobs WHERE id = ?1 AND sweep <> 0) AND NOT EXISTS "
    "(SELECT 1 FROM jobs WHERE id >= sweeps.id AND id < sweeps.id + sweeps.members AND id <> ?1)";

}  // namespace

void StateStore::DeleteJob(JobId job, WallTime now) {
  batch_->Write([job, now](Database& database) {
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
    RunSql(database, kDeleteSweepOfLastSql, id);
    RunSql(database, kKeepUseSql, id);
    RunSql(database, kDropOldUseSql, now.micros);
    RunSql(database, "DELETE FROM jobs WHERE id = ?", id);
    for (const char* table : {"job_files", "job_events", "checkpoints", "idempotency_keys", "event_streams",
                              "placements", "notices", "job_notify"})
      RunSql(database, fmt::format("DELETE FROM {} WHERE job = ?", table), id);
    RunSql(database, "DELETE FROM decisions WHERE job = ? AND job <> 0", id);  // as decisions_by_job has it
  });
}

Result<std::vector<EndedJob>> StateStore::EndedJobs(EndedJob from, WallTime until, size_t most) {
  return database_->Guard([&] {
    // By state SQLite would read and sort all that have ended.
    auto& query = database_->Prepare(
        "SELECT ended_us, id FROM jobs INDEXED BY jobs_by_end WHERE state IN (6, 7, 8) AND "
        "(ended_us, id) > (?, ?) AND ended_us < ? ORDER BY ended_us, id LIMIT ?");
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
