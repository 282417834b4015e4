#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/core/types.h"
#include "server/store/database.h"
#include "server/store/metrics_store.h"

namespace imgd {

/// A job as stored, for those who ask.
struct JobRow {
  JobRecord job;  ///< checkpoints: only the newest
  std::optional<std::string> yaml;
};

/// One event of a job from either database.
struct StoredEvent {
  uint64_t number = 0;
  int64_t time_us = 0;
  Generation generation;
  EventKind kind = EventKind::kStateChange;
  std::string payload;  ///< the serialized message of the kind's field; empty for kStateChange
  // For kStateChange:
  int from = 0;
  int to = 0;
  int reason = 0;
  std::string text;
  std::string actor;
};

/// Which jobs a page of them holds.
struct JobFilter {
  std::vector<JobState> states;  ///< empty for all
  std::string owner;             ///< empty for all
  std::string name_contains;     ///< empty for all
  JobId before;                  ///< only older ones; JobId() for all
  size_t most = 100;
};

/// Reads both databases, read-only. Not thread-safe: each reading thread has its own.
class Reader {
 public:
  /// The databases must exist.
  static Result<Reader> Open(const std::filesystem::path& folder);

  Result<std::optional<JobRow>> Job(JobId id, bool with_yaml);
  /// Newest first.
  Result<std::vector<JobRow>> Jobs(const JobFilter& filter);
  /// Changes of the job's state, oldest first.
  Result<std::vector<StoredEvent>> History(JobId job);
  /// Events with numbers above `after` and up to `last`, by number, at most `most`.
  Result<std::vector<StoredEvent>> Events(JobId job, uint64_t after, uint64_t last, size_t most);
  /// Number of the job's newest event; 0 for none.
  Result<uint64_t> LastEventNumber(JobId job);
  /// The newest event of a kind.
  Result<std::optional<StoredEvent>> Latest(JobId job, EventKind kind);
  /// Each rank's log of one start.
  Result<std::map<uint32_t, LogPosition>> LogPositions(RunKey run);

 private:
  Reader(Database state, Database metrics);

  Database state_;
  Database metrics_;
};

}  // namespace imgd
