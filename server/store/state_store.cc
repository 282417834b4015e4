#include "server/store/state_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <utility>

#include "server/store/codec.h"
#include "server/store/sql.h"

namespace imgd {

const char* const kJobColumns =
    "id, name, owner, priority, nodes, ranks_per_node, grace_ms, max_restarts, checkpoint_dir, state, "
    "reason, "
    "reason_text, generation, last_writer, restarts, failures, failures_in_row, submitted_us, started_us, "
    "ended_us, "
    "retry_at_us, run, by_hand_token, by_hand_hosts, last_heard_us, time_limit_ms, held_ms, needs, "
    "preemptible, project, avoid, rerun_of, after_jobs, not_before_us, sweep, sweep_settings, crashes, "
    "max_nodes, resize_interval_ms, kind, per_node, device_seconds, cost";

namespace {

// What nodes.aside says.
constexpr int kCordoned = 1;
constexpr int kDrained = 2;
constexpr int kForStrikes = 3;
constexpr int kForPattern = 4;

int KindOf(const std::optional<SetAside>& aside) {
  if (!aside) return 0;
  if (aside->by == AsideBy::kStrikes) return kForStrikes;
  if (aside->by == AsideBy::kPattern) return kForPattern;
  return aside->drain ? kDrained : kCordoned;
}

std::optional<SetAside> SetAsideOfRow(SQLite::Statement& row, int first) {
  const int kind = row.getColumn(first).getInt();
  if (kind == 0) return std::nullopt;
  return SetAside{.drain = kind == kDrained,
                  .reason = row.getColumn(first + 1).getString(),
                  .actor = row.getColumn(first + 2).getString(),
                  .since = {row.getColumn(first + 3).getInt64()},
                  .told_empty = row.getColumn(first + 4).getInt() != 0,
                  .by = kind == kForStrikes   ? AsideBy::kStrikes
                        : kind == kForPattern ? AsideBy::kPattern
                                              : AsideBy::kUser};
}

/// "?,?,?", one for each of the columns.
std::string PlacesFor(std::string_view columns) {
  std::string places = "?";
  for (const char c : columns) {
    if (c == ',') places += ",?";
  }
  return places;
}

std::string NewClusterId() {
  std::random_device random;
  return fmt::format("{:08x}", random());
}

}  // namespace

StateStore::StateStore(Database database)
    : database_(std::make_unique<Database>(std::move(database))),
      batch_(std::make_unique<WriteBatch>(*database_)) {}

Result<StateStore> StateStore::Open(const std::filesystem::path& folder) {
  IMGD_ASSIGN(auto database, Database::OpenForWriting(folder / "state.db", StateMigrations()));
  StateStore store(std::move(database));
  IMGD_TRY(store.LoadClusterId());
  return store;
}

Status StateStore::LoadClusterId() {
  const auto read = [this] {
    auto& query = database_->Prepare("SELECT value FROM meta WHERE key = 'cluster_id'");
    if (query.executeStep()) cluster_id_ = query.getColumn(0).getString();
    query.reset();
  };
  IMGD_TRY(database_->Guard(read));
  if (!cluster_id_.empty()) return {};
  cluster_id_ = NewClusterId();
  batch_->Write([this](Database& database) {
    RunSql(database, "INSERT INTO meta (key, value) VALUES ('cluster_id', ?)", cluster_id_);
  });
  return Commit();
}

Result<JobRecord> JobOfRow(SQLite::Statement& row) {
  int i = 0;
  const auto next = [&row, &i] { return row.getColumn(i++); };
  const auto time = [&next] { return WallTime{next().getInt64()}; };
  JobRecord job;
  job.id = JobId(Unsigned(next()));
  job.name = next().getString();
  job.owner = next().getString();
  job.priority = next().getInt();
  job.nodes = next().getUInt();
  job.ranks_per_node = next().getUInt();
  job.grace_ms = next().getInt64();
  job.max_restarts = next().getUInt();
  job.checkpoint_dir = next().getString();
  job.state = static_cast<JobState>(next().getInt());
  job.reason.code = static_cast<ReasonCode>(next().getInt());
  job.reason.text = next().getString();
  job.generation = Generation(Unsigned(next()));
  job.last_writer = Generation(Unsigned(next()));
  job.restarts = next().getUInt();
  job.failures = next().getUInt();
  job.failures_in_row = next().getUInt();
  job.submitted = time();
  job.started = time();
  job.ended = time();
  job.retry_at = time();
  IMGD_ASSIGN(job.run, DecodeRun(next().getString()));
  ByHand by_hand{.token = next().getString()};
  IMGD_ASSIGN(by_hand.hosts, DecodeTexts(next().getString()));
  by_hand.last_heard = time();
  if (!by_hand.token.empty()) job.by_hand = std::move(by_hand);
  job.time_limit_ms = next().getInt64();
  job.held_ms = next().getInt64();
  IMGD_ASSIGN(job.needs, DecodeNeeds(next().getString()));
  job.preemptible = next().getInt() != 0;
  job.project = next().getString();
  IMGD_ASSIGN(const auto avoid, DecodeTexts(next().getString()));
  for (const auto& node : avoid) job.avoid.insert(NodeId(node));
  job.rerun_of = JobId(Unsigned(next()));
  IMGD_ASSIGN(job.after, DecodeAfter(next().getString()));
  job.not_before_wall = time();
  job.sweep = JobId(Unsigned(next()));
  IMGD_ASSIGN(job.sweep_settings, DecodeSettings(next().getString()));
  IMGD_ASSIGN(job.crashes, DecodeCrashes(next().getString()));
  job.max_nodes = next().getUInt();
  job.resize_interval_ms = next().getInt64();
  job.kind = static_cast<JobKind>(next().getInt());
  job.per_node = next().getInt() != 0;
  job.device_seconds = next().getDouble();
  job.cost = next().getDouble();
  return job;
}

std::vector<Checkpoint> CheckpointsOf(Database& database, JobId job, size_t most) {
  auto& query = database.Prepare(
      "SELECT path, step, generation, size_bytes, manifest_sha256, time_us FROM checkpoints WHERE job = ? "
      "ORDER BY ordinal DESC LIMIT ?");
  BindAll(query, 1, Signed(job.value()), Signed(most));
  std::vector<Checkpoint> out;
  while (query.executeStep()) {
    out.push_back({.path = query.getColumn(0).getString(),
                   .step = Unsigned(query.getColumn(1)),
                   .generation = Generation(Unsigned(query.getColumn(2))),
                   .size_bytes = Unsigned(query.getColumn(3)),
                   .manifest_sha256 = query.getColumn(4).getString(),
                   .accepted = {query.getColumn(5).getInt64()}});
  }
  query.reset();
  return out;
}

Result<StoredState> StateStore::Load(size_t ended_jobs) {
  StoredState stored;
  IMGD_ASSIGN(stored.jobs, LoadJobs(ended_jobs));
  IMGD_ASSIGN(stored.nodes, LoadNodes());
  IMGD_ASSIGN(stored.datasets, LoadDatasets());
  IMGD_ASSIGN(stored.usage, LoadUsage());
  IMGD_ASSIGN(stored.accounts, LoadAccounts());
  IMGD_ASSIGN(stored.tokens, LoadTokens());
  IMGD_ASSIGN(stored.admissions, LoadAdmissions());
  IMGD_ASSIGN(stored.sweeps, LoadSweeps());
  IMGD_ASSIGN(stored.next_job, database_->Guard([this] {
    auto& query = database_->Prepare(
        "SELECT max((SELECT coalesce(max(id), 0) FROM jobs), (SELECT coalesce(max(value + 0), 0) FROM meta "
        "WHERE key = 'last_deleted_job')) + 1");
    query.executeStep();
    const JobId next(Unsigned(query.getColumn(0)));
    query.reset();
    return next;
  }));
  IMGD_ASSIGN(stored.first_generation, database_->Guard([this] {
    auto& query = database_->Prepare("SELECT value + 0 FROM meta WHERE key = 'first_generation'");
    const Generation first(query.executeStep() ? Unsigned(query.getColumn(0)) : 0);
    query.reset();
    return first;
  }));
  return stored;
}

Result<std::vector<JobRecord>> StateStore::LoadJobs(size_t ended_jobs) {
  const std::string live = fmt::format("SELECT {} FROM jobs WHERE state IN (1, 2, 3, 4, 5)", kJobColumns);
  const std::string ended =
      fmt::format("SELECT {} FROM jobs WHERE state IN (6, 7, 8) ORDER BY ended_us DESC, id DESC LIMIT {}",
                  kJobColumns, ended_jobs);
  std::vector<JobRecord> jobs;
  for (const auto& sql : {live, ended}) {
    auto read = database_->Guard([&]() -> Status {
      auto& query = database_->Prepare(sql);
      while (query.executeStep()) {
        IMGD_ASSIGN(auto job, JobOfRow(query));
        jobs.push_back(std::move(job));
      }
      query.reset();
      return {};
    });
    if (!read) return tl::unexpected(read.error());
    IMGD_TRY(*read);
  }
  const auto checkpoints = database_->Guard([&] {
    for (auto& job : jobs) job.checkpoints = CheckpointsOf(*database_, job.id, JobRecord::kCheckpointsKept);
  });
  IMGD_TRY(checkpoints);
  return jobs;
}

Result<std::vector<NodeRecord>> StateStore::LoadNodes() {
  std::vector<NodeRecord> nodes;
  auto read = database_->Guard([&]() -> Status {
    auto& query = database_->Prepare(
        "SELECT name, agent_id, agent_version, address, filesystem_id, devices, shared_folders, joined_us, "
        "last_heartbeat_us, state, labels, aside, aside_reason, aside_by, aside_us, aside_empty, strikes, "
        "price_per_hour FROM nodes ORDER BY name");
    while (query.executeStep()) {
      NodeRecord node{.id = NodeId(query.getColumn(0).getString()),
                      .agent_id = query.getColumn(1).getString(),
                      .agent_version = query.getColumn(2).getString(),
                      .address = query.getColumn(3).getString(),
                      .filesystem_id = query.getColumn(4).getString(),
                      .joined = {query.getColumn(7).getInt64()},
                      .state = static_cast<NodeState>(query.getColumn(9).getInt()),
                      .last_heartbeat = {query.getColumn(8).getInt64()}};
      IMGD_ASSIGN(node.devices, DecodeDevices(query.getColumn(5).getString()));
      IMGD_ASSIGN(node.shared_folders, DecodeFolders(query.getColumn(6).getString()));
      IMGD_ASSIGN(node.labels, DecodeLabels(query.getColumn(10).getString()));
      node.set_aside = SetAsideOfRow(query, 11);
      node.price_per_hour = query.getColumn(17).getDouble();
      IMGD_ASSIGN(node.strikes, DecodeStrikes(query.getColumn(16).getString()));
      nodes.push_back(std::move(node));
    }
    query.reset();
    return {};
  });
  if (!read) return tl::unexpected(read.error());
  IMGD_TRY(*read);
  return nodes;
}

Result<std::map<std::string, TokenRecord>> StateStore::LoadTokens() {
  return database_->Guard([this] {
    std::map<std::string, TokenRecord> tokens;
    auto& query = database_->Prepare("SELECT name, hash, owner, created_us, expires_us FROM tokens");
    while (query.executeStep()) {
      const std::string name = query.getColumn(0).getString();
      tokens[name] = {.name = name,
                      .hash = query.getColumn(1).getString(),
                      .owner = query.getColumn(2).getString(),
                      .created = {query.getColumn(3).getInt64()},
                      .expires = {query.getColumn(4).getInt64()}};
    }
    query.reset();
    auto& scopes = database_->Prepare("SELECT token, scope FROM token_scopes");
    while (scopes.executeStep()) {
      const auto token = tokens.find(scopes.getColumn(0).getString());
      if (token != tokens.end()) token->second.scopes.insert(scopes.getColumn(1).getString());
    }
    scopes.reset();
    return tokens;
  });
}

void StateStore::SaveToken(const TokenRecord& token) {
  batch_->Write([&token](Database& database) {
    RunSql(database, "INSERT INTO tokens VALUES (?, ?, ?, ?, ?)", token.name, token.hash, token.owner,
           token.created.micros, token.expires.micros);
    for (const auto& scope : token.scopes)
      RunSql(database, "INSERT INTO token_scopes VALUES (?, ?)", token.name, scope);
  });
}

void StateStore::RemoveToken(const std::string& name) {
  batch_->Write([&name](Database& database) {
    RunSql(database, "DELETE FROM token_scopes WHERE token = ?", name);
    RunSql(database, "DELETE FROM tokens WHERE name = ?", name);
  });
}

void StateStore::SaveJob(const JobRecord& job) {
  batch_->Write([&job, this](Database& database) {
    static const std::string kSql =
        fmt::format("INSERT OR REPLACE INTO jobs ({}) VALUES ({})", kJobColumns, PlacesFor(kJobColumns));
    // Of those that have never started, as most of a long queue.
    static const Run kNoRun;
    static const std::string kNoRunText = EncodeRun(kNoRun);
    const ByHand by_hand = job.by_hand.value_or(ByHand{});
    std::vector<std::string> avoid;
    for (const auto& node : job.avoid) avoid.push_back(node.name());
    RunSql(database, kSql, Signed(job.id.value()), job.name, job.owner, job.priority, job.nodes,
           job.ranks_per_node, job.grace_ms, job.max_restarts, job.checkpoint_dir,
           static_cast<int>(job.state), static_cast<int>(job.reason.code), job.reason.text,
           Signed(job.generation.value()), Signed(job.last_writer.value()), job.restarts, job.failures,
           job.failures_in_row, job.submitted.micros, job.started.micros, job.ended.micros,
           job.retry_at.micros, job.run == kNoRun ? kNoRunText : EncodeRun(job.run), by_hand.token,
           EncodeTexts(by_hand.hosts), by_hand.last_heard.micros, job.time_limit_ms, job.held_ms,
           TextOf(job.needs), job.preemptible ? 1 : 0, job.project, EncodeTexts(avoid),
           Signed(job.rerun_of.value()), TextOf(job.after), job.not_before_wall.micros,
           Signed(job.sweep.value()), EncodeSettings(job.sweep_settings), EncodeCrashes(job.crashes),
           job.max_nodes, job.resize_interval_ms, static_cast<int>(job.kind), job.per_node ? 1 : 0,
           job.device_seconds, job.cost);
  });
}

const std::string& StateStore::TextOf(const Needs& needs) {
  if (last_needs_.second.empty() || last_needs_.first != needs) last_needs_ = {needs, EncodeNeeds(needs)};
  return last_needs_.second;
}

const std::string& StateStore::TextOf(const std::vector<Dependency>& after) {
  if (last_after_.second.empty() || last_after_.first != after) last_after_ = {after, EncodeAfter(after)};
  return last_after_.second;
}

void StateStore::SaveReason(JobId job, const Reason& reason) {
  batch_->Write([&](Database& database) {
    RunSql(database, "UPDATE jobs SET reason = ?, reason_text = ? WHERE id = ?",
           static_cast<int>(reason.code), reason.text, Signed(job.value()));
  });
}

void StateStore::SaveJobFile(JobId job, const std::string& yaml) {
  batch_->Write([&](Database& database) {
    RunSql(database, "INSERT INTO job_files (job, yaml) VALUES (?, ?)", Signed(job.value()), yaml);
  });
}

void StateStore::SaveNode(const NodeRecord& node) {
  batch_->Write([&node](Database& database) {
    const SetAside aside = node.set_aside.value_or(SetAside{});
    RunSql(database, "INSERT OR REPLACE INTO nodes VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
           node.id.name(), node.agent_id, node.agent_version, node.address, node.filesystem_id,
           EncodeDevices(node.devices), EncodeFolders(node.shared_folders), node.joined.micros,
           node.last_heartbeat.micros, static_cast<int>(node.state), EncodeLabels(node.labels),
           KindOf(node.set_aside), aside.reason, aside.actor, aside.since.micros,
           static_cast<int>(aside.told_empty), EncodeStrikes(node.strikes), node.price_per_hour);
  });
}

void StateStore::DeleteNode(const NodeId& node) {
  batch_->Write(
      [&node](Database& database) { RunSql(database, "DELETE FROM nodes WHERE name = ?", node.name()); });
}

void StateStore::SaveCheckpoint(const imgd::SaveCheckpoint& accepted) {
  batch_->Write([&accepted](Database& database) {
    const auto& checkpoint = accepted.checkpoint;
    const int64_t job = Signed(accepted.job.value());
    RunSql(database,
           "INSERT INTO checkpoints VALUES (?, (SELECT coalesce(max(ordinal), 0) + 1 FROM checkpoints WHERE "
           "job = ?), ?, "
           "?, ?, ?, ?, ?)",
           job, job, checkpoint.path, Signed(checkpoint.step), Signed(checkpoint.generation.value()),
           Signed(checkpoint.size_bytes), checkpoint.manifest_sha256, checkpoint.accepted.micros);
  });
}

void StateStore::AppendEvent(uint64_t number, const imgd::AppendEvent& event) {
  batch_->Write([&](Database& database) {
    RunSql(database, "INSERT INTO job_events VALUES (?,?,?,?,?,?,?,?,?)", Signed(event.job.value()),
           Signed(number), event.time.micros, Signed(event.generation.value()),
           event.first ? 0 : static_cast<int>(event.from), static_cast<int>(event.to),
           static_cast<int>(event.reason.code), event.reason.text, event.actor);
  });
}

void StateStore::AppendDecision(uint64_t number, const imgd::AppendDecision& decision, uint64_t job_event) {
  batch_->Write([&](Database& database) {
    // The words of a job's change are in its history.
    const bool own_words = job_event == 0;
    RunSql(database, "INSERT INTO decisions VALUES (?,?,?,?,?,?,?,?)", Signed(number), decision.time.micros,
           Signed(decision.job.value()), Signed(job_event), decision.node.name(),
           static_cast<int>(decision.reason.code), own_words ? decision.reason.text : "",
           own_words ? decision.actor : "");
  });
}

Status StateStore::TrimDecisions(uint64_t most, WallTime oldest) {
  constexpr uint64_t kMostAtOnce = 10'000;
  IMGD_ASSIGN(const uint64_t newest, LastDecision());
  // The first row that is young enough, as cheap as what is to go is long; and the last one but `most`, by
  // count, since a restored backup leaves a gap in the numbers.
  IMGD_ASSIGN(const auto found, database_->Guard([&] {
    auto& query = database_->Prepare(
        "SELECT (SELECT number FROM decisions ORDER BY number LIMIT 1), (SELECT number FROM decisions WHERE "
        "time_us >= ? ORDER BY number LIMIT 1), coalesce((SELECT number FROM decisions ORDER BY number DESC "
        "LIMIT 1 OFFSET ?), 0)");
    BindAll(query, 1, oldest.micros, Signed(most) - 1);
    query.executeStep();
    const bool young = !query.getColumn(1).isNull();
    const std::tuple out{Unsigned(query.getColumn(0)), young ? Unsigned(query.getColumn(1)) : newest,
                         Unsigned(query.getColumn(2))};
    query.reset();
    return out;
  }));
  const auto [first, first_young, first_of_most] = found;
  const uint64_t keep = std::max(first_young, first_of_most);
  const uint64_t below = std::min({keep, newest, first + kMostAtOnce});
  if (below <= first) return {};
  batch_->Write([below](Database& database) {
    RunSql(database, "DELETE FROM decisions WHERE number < ?", Signed(below));
  });
  return {};
}

void StateStore::SaveKey(const std::string& key, const KeyRecord& record) {
  batch_->Write([&](Database& database) {
    RunSql(database, "INSERT INTO idempotency_keys (key, job, content) VALUES (?, ?, ?)", key,
           Signed(record.job.value()), record.content);
  });
}

void StateStore::SavePlacement(RunKey run, const std::vector<Part>& parts) {
  batch_->Write([&](Database& database) {
    for (const auto& part : parts) {
      RunSql(database, "INSERT OR REPLACE INTO placements VALUES (?, ?, ?, ?, ?)", Signed(run.job.value()),
             Signed(run.generation.value()), part.first_rank, part.Ranks(), part.node.name());
    }
  });
}

void StateStore::SaveEventPosition(RunKey run, uint32_t rank, uint64_t sequence) {
  batch_->Write([&](Database& database) {
    RunSql(database, "INSERT OR REPLACE INTO event_streams VALUES (?, ?, ?, ?)", Signed(run.job.value()),
           Signed(run.generation.value()), rank, Signed(sequence));
  });
}

void StateStore::Probe() {
  batch_->Write([](Database& database) {
    RunSql(database, "INSERT OR REPLACE INTO meta (key, value) VALUES ('probe', ?)",
           "written when storing had failed, to see whether it works again");
  });
}

Result<std::optional<KeyRecord>> StateStore::FindKey(const std::string& key) {
  return database_->Guard([&] {
    auto& query = database_->Prepare("SELECT job, content FROM idempotency_keys WHERE key = ?");
    query.bind(1, key);
    std::optional<KeyRecord> record;
    if (query.executeStep())
      record = KeyRecord{JobId(Unsigned(query.getColumn(0))), query.getColumn(1).getString()};
    query.reset();
    return record;
  });
}

Result<std::optional<JobRecord>> StateStore::FindJob(JobId id) {
  auto read = database_->Guard([&]() -> Result<std::optional<JobRecord>> {
    auto& query = database_->Prepare(fmt::format("SELECT {} FROM jobs WHERE id = ?", kJobColumns));
    query.bind(1, Signed(id.value()));
    if (!query.executeStep()) return std::nullopt;
    IMGD_ASSIGN(auto job, JobOfRow(query));
    query.reset();
    job.checkpoints = CheckpointsOf(*database_, id, JobRecord::kCheckpointsKept);
    return job;
  });
  if (!read) return tl::unexpected(read.error());
  return *read;
}

Result<std::string> StateStore::JobFile(JobId job) {
  return database_->Guard([&] {
    auto& query = database_->Prepare("SELECT yaml FROM job_files WHERE job = ?");
    query.bind(1, Signed(job.value()));
    std::string yaml;
    if (query.executeStep()) yaml = query.getColumn(0).getString();
    query.reset();
    return yaml;
  });
}

Result<bool> StateStore::RankWasOn(RunKey run, uint32_t rank, const NodeId& node) {
  return database_->Guard([&] {
    auto& query = database_->Prepare(
        "SELECT node FROM placements WHERE job = ? AND generation = ? AND first_rank <= ? AND "
        "? < first_rank + ranks");
    BindAll(query, 1, Signed(run.job.value()), Signed(run.generation.value()), rank, rank);
    const bool there = query.executeStep() && query.getColumn(0).getString() == node.name();
    query.reset();
    return there;
  });
}

Result<std::map<uint32_t, uint64_t>> StateStore::EventPositions(RunKey run) {
  return database_->Guard([&] {
    auto& query =
        database_->Prepare("SELECT rank, sequence FROM event_streams WHERE job = ? AND generation = ?");
    BindAll(query, 1, Signed(run.job.value()), Signed(run.generation.value()));
    std::map<uint32_t, uint64_t> out;
    while (query.executeStep()) out[query.getColumn(0).getUInt()] = Unsigned(query.getColumn(1));
    query.reset();
    return out;
  });
}

Result<uint64_t> StateStore::EventPosition(RunKey run, uint32_t rank) {
  return database_->Guard([&] {
    auto& query = database_->Prepare(
        "SELECT sequence FROM event_streams WHERE job = ? AND generation = ? AND rank = ?");
    BindAll(query, 1, Signed(run.job.value()), Signed(run.generation.value()), rank);
    const uint64_t sequence = query.executeStep() ? Unsigned(query.getColumn(0)) : 0;
    query.reset();
    return sequence;
  });
}

Result<uint64_t> StateStore::LastDecision() {
  return database_->Guard([&] {
    auto& query = database_->Prepare("SELECT coalesce(max(number), 0) FROM decisions");
    query.executeStep();
    const uint64_t number = Unsigned(query.getColumn(0));
    query.reset();
    return number;
  });
}

Result<uint64_t> StateStore::LastEventNumber(JobId job) {
  return database_->Guard([&] {
    auto& query = database_->Prepare("SELECT coalesce(max(number), 0) FROM job_events WHERE job = ?");
    query.bind(1, Signed(job.value()));
    query.executeStep();
    const uint64_t number = Unsigned(query.getColumn(0));
    query.reset();
    return number;
  });
}

}  // namespace imgd
