#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/error.h"
#include "server/store/log_format.h"
#include "server/store/metrics_store.h"

namespace imgd {

/// Appends the ranks' logs. A file is written and synced before metrics.db says how much of it counts, and
/// cut back to that before it is appended to again, so that a crash neither doubles nor loses a line that was
/// acknowledged. Owned by the core thread.
class LogStore {
 public:
  /// Of each rank's log at most about `kept_bytes` are kept, in two files: when the newer one is half of
  /// that, a third is begun and the oldest removed.
  LogStore(std::filesystem::path folder, uint64_t kept_bytes, MetricsStore* metrics);

  /// Takes lines `first_number`, `first_number`+1, ... into the batch. Those that are there already are
  /// dropped; after a gap nothing is taken, unless the line after it is the agent's notice of it. Returns the
  /// number of the last line that is stored once the batch is: what the agent may be told then. Errors: those
  /// of metrics.db.
  Result<uint64_t> Append(const LogStream& stream, const std::vector<StoredLine>& lines);

  /// Writes the batch to the files and its positions to metrics.db's batch, to be called before that one's
  /// Commit(). Errors: as the system calls, naming the file; then call Rollback().
  Status Flush();
  /// Takes the job's lines out of the batch, with which metrics.db's rows of its logs go.
  void LeaveOut(JobId job);
  /// After metrics.db's commit.
  void Committed();
  /// The files of the job's logs go; to be called between two batches, when metrics.db has none of them.
  /// Where more of a log comes later it goes on from what had been stored.
  void RemoveJob(JobId job);
  void Rollback();
  /// About how many bytes each job's logs are, of those that have any, with the batch.
  Result<std::map<JobId, uint64_t>> Sizes();

 private:
  struct Pending {
    LogPosition position;  ///< once the batch is stored
    std::string text;
    bool begins_segment = false;
  };

  Result<LogPosition> PositionOf(const LogStream& stream);
  Status WriteOut(const LogStream& stream, const Pending& pending);

  std::filesystem::path folder_;
  uint64_t segment_bytes_;
  MetricsStore* metrics_;
  std::map<LogStream, Pending> batch_;
  std::map<LogStream, LogPosition> known_;  ///< a cache, emptied when it grows large
  std::set<LogStream> checked_;             ///< cut back since the last start or rollback
};

/// Removes the logs of jobs that are not among `known`: a crash came between a job's end in the databases and
/// that of its files.
void RemoveLogsOfOthers(const std::filesystem::path& folder, const std::set<JobId>& known);

}  // namespace imgd
