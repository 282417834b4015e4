#include <fmt/format.h>

#include <limits>
#include <string_view>

#include "server/store/codec.h"
#include "server/store/sql.h"
#include "server/store/state_store.h"

/// The part of state.db that is of sweeps, and of names that jobs come after.
namespace imgd {
namespace {

void FillRungs(Database& database, SweepRecord& sweep) {
  if (!sweep.halving) return;
  sweep.rungs.resize(sweep.halving->rungs.size());
  auto& query = database.Prepare("SELECT rung, job, value FROM sweep_results WHERE sweep = ?");
  query.bind(1, Signed(sweep.id.value()));
  while (query.executeStep()) {
    const size_t rung = Unsigned(query.getColumn(0));
    const bool is_number = !query.getColumn(2).isNull();
    if (rung >= sweep.rungs.size()) continue;
    sweep.rungs[rung][JobId(Unsigned(query.getColumn(1)))] =
        is_number ? query.getColumn(2).getDouble() : std::numeric_limits<double>::quiet_NaN();
  }
  query.reset();
}

/// By the number; of anybody's where the owner is empty.
std::optional<JobId> NewestIn(Database& database, std::string_view table, const std::string& name,
                              const std::string& owner) {
  auto& query = database.Prepare(fmt::format(
      "SELECT id FROM {} WHERE name = ?1 AND (?2 = '' OR owner = ?2) ORDER BY id DESC LIMIT 1", table));
  BindAll(query, 1, name, owner);
  std::optional<JobId> newest;
  if (query.executeStep()) newest = JobId(Unsigned(query.getColumn(0)));
  query.reset();
  return newest;
}

}  // namespace

Result<std::vector<SweepRecord>> SweepsOf(Database& database, const std::string& where,
                                          const std::string& parameter) {
  auto& query = database.Prepare(fmt::format(
      "SELECT id, name, owner, members, max_running, halving, submitted_us FROM sweeps {}", where));
  query.bind(1, parameter);
  std::vector<SweepRecord> out;
  while (query.executeStep()) {
    SweepRecord sweep{.id = JobId(Unsigned(query.getColumn(0))),
                      .name = query.getColumn(1).getString(),
                      .owner = query.getColumn(2).getString(),
                      .members = query.getColumn(3).getUInt(),
                      .max_running = query.getColumn(4).getUInt(),
                      .submitted = {query.getColumn(6).getInt64()}};
    IMGD_ASSIGN(sweep.halving, DecodeHalving(query.getColumn(5).getString()));
    out.push_back(std::move(sweep));
  }
  query.reset();
  for (auto& sweep : out) FillRungs(database, sweep);
  return out;
}

Result<std::vector<SweepRecord>> StateStore::LoadSweeps() {
  auto read = database_->Guard([this] {
    return SweepsOf(*database_,
                    "WHERE id IN (SELECT sweep FROM jobs WHERE state IN (1, 2, 3, 4, 5)) AND name <> ?", "");
  });
  if (!read) return tl::unexpected(read.error());
  return std::move(*read);
}

void StateStore::SaveSweep(const SweepRecord& sweep, const std::string& yaml) {
  batch_->Write([&](Database& database) {
    RunSql(database, "INSERT INTO sweeps VALUES (?, ?, ?, ?, ?, ?, ?, ?)", Signed(sweep.id.value()),
           sweep.name, sweep.owner, sweep.members, sweep.max_running, EncodeHalving(sweep.halving),
           sweep.submitted.micros, yaml);
  });
}

void StateStore::SaveRungResult(const imgd::SaveRungResult& result) {
  batch_->Write([&result](Database& database) {
    RunSql(database, "INSERT OR REPLACE INTO sweep_results VALUES (?, ?, ?, ?)", Signed(result.sweep.value()),
           Signed(result.rung), Signed(result.job.value()), result.value);
  });
}

Result<std::string> StateStore::SweepFile(JobId sweep) {
  return database_->Guard([&] {
    auto& query = database_->Prepare("SELECT yaml FROM sweeps WHERE id = ?");
    query.bind(1, Signed(sweep.value()));
    std::string yaml;
    if (query.executeStep()) yaml = query.getColumn(0).getString();
    query.reset();
    return yaml;
  });
}

Result<std::optional<SweepRecord>> StateStore::FindSweep(JobId sweep) {
  auto read = database_->Guard([&]() -> Result<std::optional<SweepRecord>> {
    IMGD_ASSIGN(auto found, SweepsOf(*database_, "WHERE id = CAST(? AS INTEGER)", fmt::format("{}", sweep)));
    if (found.empty()) return std::nullopt;
    return std::move(found.front());
  });
  if (!read) return tl::unexpected(std::move(read).error());
  return std::move(*read);
}

Result<std::optional<JobId>> StateStore::NewestJobNamed(const std::string& name, const std::string& owner) {
  return database_->Guard([&] { return NewestIn(*database_, "jobs", name, owner); });
}

Result<std::optional<JobId>> StateStore::NewestSweepNamed(const std::string& name, const std::string& owner) {
  return database_->Guard([&] { return NewestIn(*database_, "sweeps", name, owner); });
}

}  // namespace imgd
