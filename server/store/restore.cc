#include "server/store/restore.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "common/sha256.h"
#include "server/store/archive.h"
#include "server/store/backup.h"
#include "server/store/log_format.h"
#include "server/store/sql.h"
#include "server/store/state_folder.h"

namespace imgd {
namespace {

namespace fs = std::filesystem;

// Given out since the backup at most: so many at once, and so many a second on and on.
constexpr int64_t kMostJobsAtOnce = 10'000;
constexpr int64_t kMostJobsPerSecond = 10;
constexpr int64_t kMostStartsAtOnce = 10'000;
constexpr int64_t kMostStartsPerSecond = 1;
constexpr int64_t kMostEventsAtOnce = 1'000'000;
constexpr int64_t kMostEventsPerSecond = 10'000;

struct Manifest {
  WallTime made;
  std::string version;
  std::map<std::string, std::string> sums;  ///< SHA-256 by name
};

/// A folder that goes, with what is in it.
class Staging {
 public:
  explicit Staging(fs::path path) : path_(std::move(path)) {}
  ~Staging() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

Result<Manifest> ParseManifest(const fs::path& file, const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto bad = [&] {
    return Fail(ErrorCode::kDataLoss, "{}: its {} can't be read", file.native(), kBackupManifest);
  };
  if (!json.is_object() || !json.value("format", nlohmann::json()).is_number_integer()) return bad();
  Manifest out;
  const int format = json["format"].get<int>();
  const auto version = json.value("imgd", nlohmann::json());
  out.version = version.is_string() ? version.get<std::string>() : "?";
  if (format != kBackupFormat) {
    return Fail(ErrorCode::kFailedPrecondition,
                "{} is of another imgd ({}): its format is {}, and this one knows {}", file.native(),
                out.version, format, kBackupFormat);
  }
  const auto made = json.value("made_us", nlohmann::json());
  const auto files = json.value("files", nlohmann::json());
  if (!made.is_number_integer() || !files.is_array()) return bad();
  out.made = {made.get<int64_t>()};
  for (const auto& item : files) {
    if (!item.is_object() || !item.value("name", nlohmann::json()).is_string() ||
        !item.value("sha256", nlohmann::json()).is_string())
      return bad();
    out.sums[item["name"].get<std::string>()] = item["sha256"].get<std::string>();
  }
  return out;
}

/// Writes a backup's files into a folder, and adds up what each is.
class Unpacker {
 public:
  explicit Unpacker(const RestoreOrder& order, const fs::path& to) : order_(order), to_(to) {}

  Result<Manifest> Run() {
    IMGD_TRY(ReadTar(
        order_.file, [this](const std::string& name, uint64_t size) { return Begin(name, size); },
        [this](std::string_view piece) { return Take(piece); }));
    IMGD_TRY(End());
    IMGD_ASSIGN(auto manifest, ParseManifest(order_.file, manifest_));
    for (const char* needed : {"state.db", "metrics.db"}) {
      if (!manifest.sums.contains(needed))
        return Fail(ErrorCode::kDataLoss, "{} has no {}", order_.file.native(), needed);
    }
    if (manifest.sums != sums_) {
      return Fail(ErrorCode::kDataLoss, "{} is damaged: its files are not those that were put into it",
                  order_.file.native());
    }
    return manifest;
  }

 private:
  Status Begin(const std::string& name, uint64_t size) {
    IMGD_TRY(End());
    name_ = name;
    if (name == kBackupManifest) {
      if (size <= (1 << 20)) return {};
      return Fail(ErrorCode::kDataLoss, "{}: its {} is too long", order_.file.native(), name);
    }
    const bool known = std::find(kBackedUpFiles.begin(), kBackedUpFiles.end(), name) != kBackedUpFiles.end();
    if (!known || sums_.contains(name)) {
      return Fail(ErrorCode::kDataLoss, "{} is no backup of imgd: it has a file '{}'", order_.file.native(),
                  name);
    }
    const auto path = to_ / name;
    fd_ = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd_.valid()) return FailErrno(errno, "cannot create " + path.native());
    sum_.emplace();
    return {};
  }

  Status Take(std::string_view piece) {
    if (name_ == kBackupManifest) {
      manifest_ += piece;
      return {};
    }
    sum_->Update(piece);
    return WriteAll(fd_.get(), piece, (to_ / name_).native());
  }

  Status End() {
    if (!fd_.valid()) return {};
    if (::fsync(fd_.get()) != 0) return FailErrno(errno, "cannot sync " + (to_ / name_).native());
    fd_.reset();
    sums_[name_] = sum_->Finish();
    return {};
  }

  const RestoreOrder& order_;
  const fs::path& to_;
  std::string name_;
  std::string manifest_;
  UniqueFd fd_;
  std::optional<Sha256> sum_;
  std::map<std::string, std::string> sums_;
};

/// Opens it, with its schema up to date, and looks through all of it.
Result<Database> OpenWhole(const fs::path& path, const std::vector<Migration>& migrations) {
  IMGD_ASSIGN(auto database, Database::OpenForWriting(path, migrations));
  IMGD_ASSIGN(const std::string found, database.Guard([&database] {
    auto& check = database.Prepare("PRAGMA integrity_check(1)");
    const std::string first = check.executeStep() ? check.getColumn(0).getString() : "nothing";
    check.reset();
    return first;
  }));
  if (found == "ok") return database;
  return Fail(ErrorCode::kDataLoss, "{} of the backup is damaged: {}", path.filename().native(), found);
}

int64_t NumberOf(Database& database, const std::string& sql) {
  auto& query = database.Prepare(sql);
  const int64_t out = query.executeStep() ? query.getColumn(0).getInt64() : 0;
  query.reset();
  return out;
}

void SetMeta(Database& database, const char* key, int64_t value) {
  RunSql(database, "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", key, value);
}

/// Of each job that has not ended, its number and its newest event's in the state.
std::vector<std::pair<int64_t, int64_t>> LiveJobs(Database& state) {
  std::vector<std::pair<int64_t, int64_t>> out;
  auto& query = state.Prepare(
      "SELECT id, (SELECT coalesce(max(number), 0) FROM job_events WHERE job = jobs.id) FROM jobs WHERE "
      "state "
      "IN (1, 2, 3, 4, 5)");
  while (query.executeStep()) out.emplace_back(query.getColumn(0).getInt64(), query.getColumn(1).getInt64());
  query.reset();
  return out;
}

/// See RestoreBackup. Throws SQLite::Exception.
void RaiseNumbers(Database& state, Database& metrics, const Manifest& manifest, WallTime now,
                  Restored& restored) {
  const int64_t seconds = (now.micros - manifest.made.micros) / 1'000'000 + 1;
  const int64_t last_job =
      NumberOf(state,
               "SELECT max((SELECT coalesce(max(id), 0) FROM jobs), (SELECT coalesce(max(value + 0), 0) FROM "
               "meta WHERE key = 'last_deleted_job'))") +
      kMostJobsAtOnce + kMostJobsPerSecond * seconds;
  SetMeta(state, "last_deleted_job", last_job);
  const int64_t first_start =
      NumberOf(
          state,
          "SELECT max((SELECT coalesce(max(generation), 0) FROM jobs), (SELECT coalesce(max(value + 0), 0) "
          "FROM meta WHERE key = 'first_generation'))") +
      kMostStartsAtOnce + kMostStartsPerSecond * seconds;
  SetMeta(state, "first_generation", first_start);
  const int64_t events = kMostEventsAtOnce + kMostEventsPerSecond * seconds;
  const std::string text = fmt::format(
      "imgd was restored from its backup of {}, made by imgd {}; what happened since then is lost",
      RestoreTimeText(manifest.made), manifest.version);
  RunSql(state,
         "INSERT INTO decisions (number, time_us, job, job_event, node, reason, text, actor) SELECT "
         "coalesce(max(number), 0) + ?1, ?2, 0, 0, '', 70, ?3, 'imgd' FROM decisions",
         events, now.micros, text);
  for (const auto& [job, newest] : LiveJobs(state)) {
    const int64_t other =
        NumberOf(metrics, fmt::format("SELECT coalesce(max(number), 0) FROM events WHERE job = {}", job));
    RunSql(state,
           "INSERT INTO job_events (job, number, time_us, generation, from_state, to_state, reason, text, "
           "actor) "
           "SELECT id, ?1, ?2, generation, state, state, 70, ?3, 'imgd' FROM jobs WHERE id = ?4",
           std::max(newest, other) + events, now.micros, text, job);
  }
  restored.next_job = JobId(static_cast<uint64_t>(last_job + 1));
  restored.first_generation = Generation(static_cast<uint64_t>(first_start));
}

/// A log whose file does not have all that the backup knows of goes on in a new file. Throws
/// SQLite::Exception.
void CutLogs(Database& metrics, const fs::path& logs) {
  struct Known {
    LogStream stream;
    uint64_t segment;
    uint64_t bytes;
  };
  std::vector<Known> all;
  auto& query = metrics.Prepare("SELECT job, generation, rank, segment, segment_bytes FROM log_streams");
  while (query.executeStep()) {
    all.push_back({{{JobId(Unsigned(query.getColumn(0))), Generation(Unsigned(query.getColumn(1)))},
                    query.getColumn(2).getUInt()},
                   Unsigned(query.getColumn(3)),
                   Unsigned(query.getColumn(4))});
  }
  query.reset();
  for (const auto& [stream, segment, bytes] : all) {
    std::error_code error;
    const auto size = fs::file_size(LogFile(logs, stream, segment), error);
    if (!error && size >= bytes) continue;
    RunSql(metrics,
           "UPDATE log_streams SET segment = segment + 1, segment_bytes = 0 WHERE job = ? AND generation = ? "
           "AND "
           "rank = ?",
           Signed(stream.run.job.value()), Signed(stream.run.generation.value()), stream.rank);
  }
}

/// Makes the backup's databases ready to go on from, in the folder where they are.
Status Prepare(const fs::path& staged, const RestoreOrder& order, const Manifest& manifest,
               Restored& restored) {
  IMGD_ASSIGN(auto state, OpenWhole(staged / "state.db", StateMigrations()));
  IMGD_ASSIGN(auto metrics, OpenWhole(staged / "metrics.db", MetricsMigrations()));
  WriteBatch changes(state);
  changes.Write([&](Database& database) { RaiseNumbers(database, metrics, manifest, order.now, restored); });
  IMGD_TRY(changes.Commit());
  WriteBatch cuts(metrics);
  cuts.Write([&](Database& database) { CutLogs(database, order.state_dir / "logs"); });
  IMGD_TRY(cuts.Commit());
  IMGD_TRY(state.MakeOneFile());
  return metrics.MakeOneFile();
}

/// A name that nothing in the folder has; empty where nothing is to be set aside.
std::string AsideName(const fs::path& folder, WallTime now) {
  if (!HoldsState(folder)) return "";
  std::string stamp = RestoreTimeText(now);
  std::erase_if(stamp, [](char c) { return c == '-' || c == ':'; });
  std::replace(stamp.begin(), stamp.end(), ' ', 'T');
  std::string name = fmt::format("before-restore-{}", stamp.substr(0, stamp.size() - 4));
  while (fs::exists(folder / name)) name += "+";
  return name;
}

}  // namespace

std::string RestoreTimeText(WallTime time) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(static_cast<time_t>(time.micros / 1'000'000)));
}

Result<Restored> RestoreBackup(const RestoreOrder& order) {
  IMGD_TRY(MakeFolders(order.state_dir));
  IMGD_ASSIGN(const UniqueFd lock, LockStateFolder(order.state_dir));
  // One that was broken off is finished: so it is not a mixture that is set aside now.
  const bool half = HoldsUnknownHalf(order.state_dir);
  if (!half) IMGD_TRY(FinishInstall(order.state_dir, order.before_step));
  if (!order.replace && (half || HoldsState(order.state_dir))) {
    return tl::unexpected(
        Error{.code = ErrorCode::kAlreadyExists,
              .message = fmt::format("{} {}", order.state_dir.native(),
                                     half ? "is where a restore was broken off" : "holds a state already"),
              .hint = "with --replace it is set aside, and the backup takes its place"});
  }
  const Staging staged(order.state_dir / kRestoreStaging);
  std::error_code ignored;
  fs::remove_all(staged.path(), ignored);
  if (::mkdir(staged.path().c_str(), 0700) != 0)
    return FailErrno(errno, "cannot create folder " + staged.path().native());
  IMGD_ASSIGN(const Manifest manifest, Unpacker(order, staged.path()).Run());
  if (manifest.made > order.now) {
    return Fail(
        ErrorCode::kFailedPrecondition,
        "{} was made at {}, and by this machine's clock it is {}: set the clock, by which it is known "
        "which numbers may have been given out since",
        order.file.native(), RestoreTimeText(manifest.made), RestoreTimeText(order.now));
  }
  Restored restored{.made = manifest.made, .version = manifest.version};
  IMGD_TRY(Prepare(staged.path(), order, manifest, restored));
  if (half) fs::remove_all(order.state_dir / kHalfRestored, ignored);  // its files are damaged, or of before
  IMGD_TRY(
      BeginInstall(order.state_dir, staged.path(), AsideName(order.state_dir, order.now), order.before_step));
  IMGD_ASSIGN(restored.set_aside, FinishInstall(order.state_dir, order.before_step));
  return restored;
}

}  // namespace imgd
