#include "server/store/database.h"

#include <SQLiteCpp/Backup.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "common/files.h"

namespace imgd {

Database::Database(std::filesystem::path path, int flags)
    : path_(std::move(path)), db_(std::make_unique<SQLite::Database>(path_.string(), flags, 5000)) {}

Result<Database> Database::OpenForWriting(const std::filesystem::path& path,
                                          const std::vector<Migration>& migrations) {
  try {
    Database database(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    const auto set_up = database.Guard([&database] {
      database.Execute("PRAGMA journal_mode=WAL");
      database.Execute("PRAGMA synchronous=FULL");
      database.Execute("PRAGMA temp_store=MEMORY");
    });
    IMGD_TRY(set_up);
    IMGD_TRY(database.Migrate(migrations));
    return database;
  } catch (const SQLite::Exception& exception) {
    return Fail(ErrorCode::kPermissionDenied, "cannot open {}: {}", path.native(), exception.what());
  }
}

Result<Database> Database::OpenForReading(const std::filesystem::path& path) {
  try {
    return Database(path, SQLite::OPEN_READONLY);
  } catch (const SQLite::Exception& exception) {
    return Fail(ErrorCode::kPermissionDenied, "cannot open {}: {}", path.native(), exception.what());
  }
}

Result<int> Database::Version() {
  return Guard([this] {
    SQLite::Statement query(*db_, "PRAGMA user_version");
    query.executeStep();
    return query.getColumn(0).getInt();
  });
}

Status Database::HoldMoment() {
  return Guard([this] {
    Execute("BEGIN");
    // A transaction sees what was there at its first reading.
    SQLite::Statement(*db_, "SELECT count(*) FROM sqlite_schema").executeStep();
  });
}

Status Database::CopyTo(const std::filesystem::path& path, const std::function<bool()>& broken_off) {
  constexpr int kPagesAtOnce = 1024;
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return FailErrno(errno, "cannot create " + path.native());
  const auto copy = [&] {
    SQLite::Database copy(path.string(), SQLite::OPEN_READWRITE);
    copy.exec("PRAGMA synchronous=OFF");  // it is synced below
    SQLite::Backup backup(copy, *db_);
    for (int step = SQLITE_OK; step != SQLITE_DONE;) {
      if (broken_off && broken_off()) return false;
      step = backup.executeStep(kPagesAtOnce);
      if (step != SQLITE_OK && step != SQLITE_DONE) throw SQLite::Exception(copy.getHandle());
    }
    copy.exec("PRAGMA journal_mode=DELETE");  // one file, without a log beside it
    return true;
  };
  const Result<bool> whole = Guard(copy);
  Status copied;
  if (!whole) {
    copied = tl::unexpected(whole.error());
  } else if (!*whole) {
    copied = Fail(ErrorCode::kCancelled, "it was broken off");
  }
  if (copied && ::fsync(fd.get()) != 0) copied = FailErrno(errno, "cannot sync " + path.native());
  if (copied) return {};
  ::unlink(path.c_str());
  copied.error().message = fmt::format("cannot copy to {}: {}", path.native(), copied.error().message);
  return copied;
}

Status Database::MakeOneFile() {
  IMGD_ASSIGN(const std::string mode, Guard([this] {
                auto& query = Prepare("PRAGMA journal_mode=DELETE");
                const std::string found = query.executeStep() ? query.getColumn(0).getString() : "nothing";
                query.reset();
                return found;
              }));
  if (mode == "delete") return {};
  return Fail(ErrorCode::kUnavailable, "cannot end the log of {}: its mode stays {}", path_.native(), mode);
}

/// Before it is changed for good: to go back to the older imgd takes it. Older copies go once it is there.
Status Database::KeepCopy(int version) {
  const std::string prefix = path_.filename().native() + ".schema-";
  const std::filesystem::path copy = fmt::format("{}.schema-{}", path_.native(), version);
  const std::filesystem::path making = copy.native() + ".new";
  std::error_code ignored;
  std::filesystem::remove(making, ignored);  // of one that was broken off
  Status copied = CopyTo(making);
  if (copied && ::rename(making.c_str(), copy.c_str()) != 0)
    copied = FailErrno(errno, "cannot make " + copy.native());
  if (!copied) {
    std::filesystem::remove(making, ignored);
    copied.error().message = fmt::format("the schema of {} is changed only after a copy was made, and {}",
                                         path_.native(), copied.error().message);
    return copied;
  }
  for (const auto& entry : std::filesystem::directory_iterator(path_.parent_path(), ignored)) {
    const std::filesystem::path name = entry.path().filename();
    if (name.native().starts_with(prefix) && name != copy.filename())
      std::filesystem::remove(entry.path(), ignored);
  }
  spdlog::info("file={} copy={} msg=\"its schema is brought up to date; the copy is what it was\"",
               path_.native(), copy.native());
  return {};
}

Status Database::Migrate(const std::vector<Migration>& migrations) {
  const auto version = Version();
  if (!version) return tl::unexpected(version.error());
  const int newest = migrations.empty() ? 0 : migrations.back().number;
  if (*version > newest) {
    return Fail(ErrorCode::kFailedPrecondition,
                "{} was written by a newer imgd: its schema is {}, this one knows up to {}", path_.native(),
                *version, newest);
  }
  const auto first = std::find_if(migrations.begin(), migrations.end(),
                                  [&](const Migration& one) { return one.number > *version; });
  if (first == migrations.end()) return {};
  if (*version > 0) IMGD_TRY(KeepCopy(*version));
  const char* name = first->name;
  WriteBatch batch(*this);
  batch.Write([&](Database& database) {
    for (auto migration = first; migration != migrations.end(); ++migration) {
      name = migration->name;
      database.Execute(migration->sql);
    }
    database.Execute(fmt::format("PRAGMA user_version={}", newest));
  });
  auto done = batch.Commit();
  if (!done) done.error().message = fmt::format("migration {}: {}", name, done.error().message);
  return done;
}

SQLite::Statement& Database::Prepare(const std::string& sql) {
  auto& statement = statements_[sql];
  if (!statement) {
    statement = std::make_unique<SQLite::Statement>(*db_, sql);
  } else {
    // An error of the last use is its own; it was reported then.
    statement->tryReset();
    statement->clearBindings();
  }
  return *statement;
}

void Database::Execute(const std::string& sql) {
  // A statement that was left in mid-read would keep a transaction from ending.
  db_->exec(sql);
}

Error Database::ErrorOf(const SQLite::Exception& exception, int saved_errno) const {
  const int code = exception.getErrorCode() & 0xff;
  const int known = sqlite3_system_errno(db_->getHandle());
  const int system = known != 0 ? known : saved_errno;
  const bool out_of_space = system == ENOSPC || system == EDQUOT || system == EFBIG;
  ErrorCode kind = ErrorCode::kInternal;
  if (code == SQLITE_FULL || (code == SQLITE_IOERR && out_of_space)) {
    kind = ErrorCode::kResourceExhausted;
  } else if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) {
    kind = ErrorCode::kDataLoss;
  } else if (code == SQLITE_BUSY || code == SQLITE_LOCKED) {
    kind = ErrorCode::kUnavailable;
  } else if (code == SQLITE_READONLY || code == SQLITE_PERM) {
    kind = ErrorCode::kPermissionDenied;
  }
  std::string cause = exception.what();
  if (code == SQLITE_IOERR && system != 0) cause = fmt::format("{} ({})", cause, std::strerror(system));
  return {.code = kind, .message = fmt::format("cannot use {}: {}", path_.native(), cause)};
}

Status WriteBatch::Commit() {
  if (!error_ && open_) {
    const auto done = database_->Guard([this] { database_->Execute("COMMIT"); });
    if (!done) error_ = done.error();
    if (done) open_ = false;
  }
  if (!error_) return {};
  Error error = *error_;
  Rollback();
  return tl::unexpected(std::move(error));
}

void WriteBatch::Rollback() {
  if (open_) {
    // SQLite may have rolled back by itself (disk full); then there is nothing left to undo.
    (void)database_->Guard([this] { database_->Execute("ROLLBACK"); });
  }
  open_ = false;
  error_.reset();
}

}  // namespace imgd
