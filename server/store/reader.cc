#include "server/store/reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/store/sql.h"
#include "server/store/state_store.h"

namespace imgd {
namespace {

StoredEvent MetricOfRow(SQLite::Statement& row) {
  const auto payload = row.getColumn(4);
  return {.number = Unsigned(row.getColumn(0)),
          .time_us = row.getColumn(1).getInt64(),
          .generation = Generation(Unsigned(row.getColumn(2))),
          .kind = static_cast<EventKind>(row.getColumn(3).getInt()),
          .payload = std::string(static_cast<const char*>(payload.getBlob()),
                                 static_cast<size_t>(payload.getBytes()))};
}

StoredEvent ChangeOfRow(SQLite::Statement& row) {
  return {.number = Unsigned(row.getColumn(0)),
          .time_us = row.getColumn(1).getInt64(),
          .generation = Generation(Unsigned(row.getColumn(2))),
          .kind = EventKind::kStateChange,
          .from = row.getColumn(3).getInt(),
          .to = row.getColumn(4).getInt(),
          .reason = row.getColumn(5).getInt(),
          .text = row.getColumn(6).getString(),
          .actor = row.getColumn(7).getString()};
}

constexpr const char* kMetricColumns = "number, time_us, generation, kind, payload";
constexpr const char* kChangeColumns =
    "number, time_us, generation, from_state, to_state, reason, text, actor";

template <typename Convert>
std::vector<StoredEvent> Collect(SQLite::Statement& query, Convert convert) {
  std::vector<StoredEvent> out;
  while (query.executeStep()) out.push_back(convert(query));
  query.reset();
  return out;
}

/// The listing's SQL. One branch for each state, so that each is read newest first from its index.
/// Parameters: 1 owner, 2 part of the name, 3 number before which, 4 most, 5 number from which on.
std::string ListSql(const JobFilter& filter) {
  std::string where = "id < ?3 AND id >= ?5";
  if (!filter.owner.empty()) where += " AND owner = ?1";
  if (!filter.name_contains.empty()) where += " AND instr(name, ?2) > 0";
  const auto branch = [&where](const std::string& state) {
    return fmt::format("SELECT * FROM (SELECT {} FROM jobs WHERE {}{} ORDER BY id DESC LIMIT ?4)",
                       kJobColumns, where, state);
  };
  if (filter.states.empty()) return branch("");
  std::vector<int> states;
  states.reserve(filter.states.size());
  for (const JobState state : filter.states) states.push_back(static_cast<int>(state));
  std::sort(states.begin(), states.end());
  states.erase(std::unique(states.begin(), states.end()), states.end());
  std::vector<std::string> branches;
  for (const int state : states) branches.push_back(branch(fmt::format(" AND state = {}", state)));
  return fmt::format("{} ORDER BY id DESC LIMIT ?4", fmt::join(branches, " UNION ALL "));
}

/// Only the parameters that the statement has may be bound.
void BindList(SQLite::Statement& query, const JobFilter& filter) {
  if (!filter.owner.empty()) query.bind(1, filter.owner);
  if (!filter.name_contains.empty()) query.bind(2, filter.name_contains);
  query.bind(3, filter.before == JobId() ? INT64_MAX : Signed(filter.before.value()));
  query.bind(4, Signed(filter.most));
  query.bind(5, Signed(filter.from.value()));
}

/// Runs `work`, which returns a Result and may throw as well.
template <typename Work>
auto Flat(Database& database, Work work) -> decltype(work()) {
  auto result = database.Guard(work);
  if (!result) return tl::unexpected(result.error());
  return std::move(*result);
}

}  // namespace

Reader::Reader(Database state, Database metrics) : state_(std::move(state)), metrics_(std::move(metrics)) {}

Result<Reader> Reader::Open(const std::filesystem::path& folder) {
  IMGD_ASSIGN(auto state, Database::OpenForReading(folder / "state.db"));
  IMGD_ASSIGN(auto metrics, Database::OpenForReading(folder / "metrics.db"));
  return Reader(std::move(state), std::move(metrics));
}

Result<std::optional<JobRow>> Reader::Job(JobId id, bool with_yaml) {
  return Flat(state_, [&]() -> Result<std::optional<JobRow>> {
    auto& query = state_.Prepare(fmt::format("SELECT {} FROM jobs WHERE id = ?", kJobColumns));
    query.bind(1, Signed(id.value()));
    if (!query.executeStep()) return std::nullopt;
    JobRow row;
    IMGD_ASSIGN(row.job, JobOfRow(query));
    query.reset();
    row.job.checkpoints = CheckpointsOf(state_, id, 1);
    if (with_yaml) {
      auto& file = state_.Prepare("SELECT yaml FROM job_files WHERE job = ?");
      file.bind(1, Signed(id.value()));
      if (file.executeStep()) row.yaml = file.getColumn(0).getString();
      file.reset();
    }
    return row;
  });
}

Result<std::vector<JobRow>> Reader::Jobs(const JobFilter& filter) {
  return Flat(state_, [&]() -> Result<std::vector<JobRow>> {
    auto& query = state_.Prepare(ListSql(filter));
    BindList(query, filter);
    std::vector<JobRow> rows;
    while (query.executeStep()) {
      JobRow row;
      IMGD_ASSIGN(row.job, JobOfRow(query));
      rows.push_back(std::move(row));
    }
    query.reset();
    for (auto& row : rows) row.job.checkpoints = CheckpointsOf(state_, row.job.id, 1);
    return rows;
  });
}

Result<std::optional<SweepRecord>> Reader::SweepWith(JobId job) {
  return Flat(state_, [&]() -> Result<std::optional<SweepRecord>> {
    IMGD_ASSIGN(const auto found, SweepsOf(state_, "WHERE id <= CAST(? AS INTEGER) ORDER BY id DESC LIMIT 1",
                                           fmt::format("{}", job)));
    if (found.empty() || job.value() >= found.front().Member(found.front().members).value())
      return std::nullopt;
    return found.front();
  });
}

Result<std::optional<SweepRecord>> Reader::SweepNamed(const std::string& name) {
  return Flat(state_, [&]() -> Result<std::optional<SweepRecord>> {
    IMGD_ASSIGN(const auto found, SweepsOf(state_, "WHERE name = ? ORDER BY id DESC LIMIT 1", name));
    if (found.empty()) return std::nullopt;
    return found.front();
  });
}

Result<std::vector<StoredEvent>> Reader::History(JobId job) {
  return state_.Guard([&] {
    auto& query = state_.Prepare(
        fmt::format("SELECT {} FROM job_events WHERE job = ? ORDER BY number", kChangeColumns));
    query.bind(1, Signed(job.value()));
    return Collect(query, ChangeOfRow);
  });
}

Result<std::vector<StoredEvent>> Reader::Events(JobId job, uint64_t after, uint64_t last, size_t most) {
  const auto bind = [&](SQLite::Statement& query) {
    BindAll(query, 1, Signed(job.value()), Signed(after), Signed(last), Signed(most));
  };
  constexpr const char* kRange = "WHERE job = ? AND number > ? AND number <= ? ORDER BY number LIMIT ?";
  IMGD_ASSIGN(auto metrics, metrics_.Guard([&] {
    auto& query = metrics_.Prepare(fmt::format("SELECT {} FROM events {}", kMetricColumns, kRange));
    bind(query);
    return Collect(query, MetricOfRow);
  }));
  IMGD_ASSIGN(auto changes, state_.Guard([&] {
    auto& query = state_.Prepare(fmt::format("SELECT {} FROM job_events {}", kChangeColumns, kRange));
    bind(query);
    return Collect(query, ChangeOfRow);
  }));
  std::vector<StoredEvent> merged;
  std::merge(std::make_move_iterator(metrics.begin()), std::make_move_iterator(metrics.end()),
             std::make_move_iterator(changes.begin()), std::make_move_iterator(changes.end()),
             std::back_inserter(merged),
             [](const StoredEvent& a, const StoredEvent& b) { return a.number < b.number; });
  // Beyond the first `most` of both, one side's events may be missing.
  if (merged.size() > most) merged.resize(most);
  return merged;
}

Result<uint64_t> Reader::LastEventNumber(JobId job) {
  const auto read = [job](Database& database, const char* sql) {
    return database.Guard([&] {
      auto& query = database.Prepare(sql);
      query.bind(1, Signed(job.value()));
      query.executeStep();
      const uint64_t number = Unsigned(query.getColumn(0));
      query.reset();
      return number;
    });
  };
  IMGD_ASSIGN(const uint64_t metric,
              read(metrics_, "SELECT coalesce(max(number), 0) FROM events WHERE job = ?"));
  IMGD_ASSIGN(const uint64_t change,
              read(state_, "SELECT coalesce(max(number), 0) FROM job_events WHERE job = ?"));
  return std::max(metric, change);
}

Result<std::optional<StoredEvent>> Reader::Latest(JobId job, EventKind kind) {
  IMGD_ASSIGN(auto events, Newest(job, kind, 1));
  if (events.empty()) return std::nullopt;
  return std::move(events.front());
}

Result<std::vector<StoredEvent>> Reader::Newest(JobId job, EventKind kind, size_t most, uint64_t before) {
  return metrics_.Guard([&] {
    auto& query = metrics_.Prepare(fmt::format(
        "SELECT {} FROM events WHERE job = ? AND kind = ? AND number < ? ORDER BY number DESC LIMIT ?",
        kMetricColumns));
    BindAll(query, 1, Signed(job.value()), static_cast<int>(kind), Signed(before), Signed(most));
    std::vector<StoredEvent> events;
    while (query.executeStep()) events.push_back(MetricOfRow(query));
    query.reset();
    return events;
  });
}

Result<DatasetFactsRow> Reader::DatasetFacts(const std::string& name) {
  return state_.Guard([&] {
    auto& query = state_.Prepare("SELECT contents, verification FROM dataset_facts WHERE name = ?");
    query.bind(1, name);
    DatasetFactsRow out;
    const auto blob = [&query](int i) {
      const auto column = query.getColumn(i);
      return std::string(static_cast<const char*>(column.getBlob()), static_cast<size_t>(column.getBytes()));
    };
    if (query.executeStep()) out = {.contents = blob(0), .verification = blob(1)};
    query.reset();
    return out;
  });
}

Result<std::map<uint32_t, LogPosition>> Reader::LogPositions(RunKey run) {
  return metrics_.Guard([&] {
    auto& query = metrics_.Prepare(
        "SELECT rank, last_line, segment, segment_bytes FROM log_streams WHERE job = ? AND generation = ?");
    BindAll(query, 1, Signed(run.job.value()), Signed(run.generation.value()));
    std::map<uint32_t, LogPosition> out;
    while (query.executeStep()) {
      out[query.getColumn(0).getUInt()] = {Unsigned(query.getColumn(1)), Unsigned(query.getColumn(2)),
                                           Unsigned(query.getColumn(3))};
    }
    query.reset();
    return out;
  });
}

Result<std::optional<Generation>> Reader::NextStartWithLog(JobId job, Generation after) {
  return metrics_.Guard([&] {
    auto& query = metrics_.Prepare(
        "SELECT generation FROM log_streams WHERE job = ? AND generation > ? ORDER BY generation LIMIT 1");
    BindAll(query, 1, Signed(job.value()), Signed(after.value()));
    std::optional<Generation> out;
    if (query.executeStep()) out = Generation(Unsigned(query.getColumn(0)));
    query.reset();
    return out;
  });
}

Result<std::vector<RankStretch>> Reader::RankTimes(JobId job) {
  return metrics_.Guard([&] { return WithoutRepeats(LoadRankTimes(metrics_, job)); });
}

Result<std::vector<Curve>> Reader::Curves(JobId job, const CurveQuery& query) {
  return Flat(metrics_, [&] { return ReadCurves(metrics_, job, query); });
}

}  // namespace imgd
