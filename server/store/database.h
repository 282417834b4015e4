#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "server/store/migrations.h"

namespace imgd {

/// One connection to an SQLite file, with its prepared statements. Not thread-safe: each thread has its own.
///
/// SQLite before 3.51.3 can lose pages when two connections write and checkpoint at once, so each file has
/// one read-write connection that does all of both; the others are read-only.
class Database {
 public:
  /// Opens or makes the file for writing, in WAL mode with synchronous=FULL, and brings its schema up to
  /// date, by all migrations in one transaction. Before they change an older file it is copied to
  /// FILE.schema-N, for its owner's eyes only, N being what the file has; older copies go once it is there.
  /// Errors: kFailedPrecondition for a file of a newer imgd, kDataLoss for one that is no database, else as
  /// the system has it; all name the path.
  static Result<Database> OpenForWriting(const std::filesystem::path& path,
                                         const std::vector<Migration>& migrations);
  /// Opens the file for reading. It must exist.
  static Result<Database> OpenForReading(const std::filesystem::path& path);

  /// From now on this connection, which is for reading, sees the database as it is at this moment, whatever
  /// is written meanwhile. The write-ahead log grows as long as it is open.
  Status HoldMoment();
  /// All of it is in the one file then, synced, without a log beside it; for whoever moves that. Errors:
  /// those of the database, which may be in use by others.
  Status MakeOneFile();
  /// Copies it into a new file, for its owner's eyes only. `broken_off` is asked every few megabytes; may be
  /// empty. Errors: kAlreadyExists; kResourceExhausted for a full disk; kCancelled where it was broken off.
  /// In all of them nothing is left of the copy.
  Status CopyTo(const std::filesystem::path& path, const std::function<bool()>& broken_off = {});

  Database(Database&&) = default;
  Database& operator=(Database&&) = default;

  /// The statement, ready to be bound; prepared at its first use. Throws SQLite::Exception.
  SQLite::Statement& Prepare(const std::string& sql);
  void Execute(const std::string& sql);

  /// The error in words, with the path and the system's cause.
  Error ErrorOf(const SQLite::Exception& exception, int saved_errno) const;

  /// Runs `work`, which may throw SQLite::Exception, and returns its value or the error.
  template <typename Work>
  auto Guard(Work work) -> Result<decltype(work())> {
    // SQLite does not keep the cause of a failed write to its log; it is still here when the call returns.
    errno = 0;
    try {
      if constexpr (std::is_void_v<decltype(work())>) {
        work();
        return {};
      } else {
        return work();
      }
    } catch (const SQLite::Exception& exception) {
      return tl::unexpected(ErrorOf(exception, errno));
    }
  }

 private:
  Database(std::filesystem::path path, int flags);
  Result<int> Version();
  Status Migrate(const std::vector<Migration>& migrations);
  Status KeepCopy(int version);

  std::filesystem::path path_;
  std::unique_ptr<SQLite::Database> db_;
  std::map<std::string, std::unique_ptr<SQLite::Statement>> statements_;  // ended before db_
};

/// A transaction over many writes, begun by the first. The first error is kept: what follows does nothing,
/// and Commit() undoes all and returns it. Not thread-safe.
class WriteBatch {
 public:
  explicit WriteBatch(Database& database) : database_(&database) {}

  /// Runs `work(database)` inside the transaction, unless an earlier one failed.
  template <typename Work>
  void Write(Work work) {
    if (error_) return;
    const auto done = database_->Guard([&] {
      if (!open_) database_->Execute("BEGIN IMMEDIATE");
      open_ = true;
      work(*database_);
    });
    if (!done) error_ = done.error();
  }

  /// Makes all of it durable. On an error nothing of it is stored.
  Status Commit();
  void Rollback();
  /// True when something was written since the last end of a batch.
  bool open() const { return open_; }
  void Fail(Error error) {
    if (!error_) error_ = std::move(error);
  }

 private:
  Database* database_;
  bool open_ = false;
  std::optional<Error> error_;
};

}  // namespace imgd
