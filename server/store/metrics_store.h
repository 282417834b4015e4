#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "server/core/types.h"
#include "server/store/database.h"
#include "server/store/rank_times.h"

namespace imgd {

/// Kinds of a job's events: the field numbers of JobEvent.event in proto/imgd/v1/job.proto.
enum class EventKind : int {
  kStateChange = 4,
  kStep = 5,
  kEpoch = 6,
  kCheckpoint = 7,
  kRankExit = 8,
  kRankStarted = 9,
  kBadImage = 10,
  kProfile = 16,
  kClasses = 18,
  kSamples = 19,
};

/// Sequence of a rank's exit, which comes from the agent and not from the trainer's own count.
inline constexpr uint64_t kExitSequence = 0;

/// A numbered event of a job that is no change of its state.
struct MetricEvent {
  RunKey run;
  uint64_t number = 0;
  uint32_t rank = 0;
  uint64_t sequence = 0;
  EventKind kind = EventKind::kStep;
  int64_t time_us = 0;
  std::string payload;  ///< the serialized message of that field
};

/// How much of one rank's log is stored.
struct LogPosition {
  uint64_t last_line = 0;
  uint64_t segment = 0;        ///< number of the file being written
  uint64_t segment_bytes = 0;  ///< of it that count
};

/// One rank's log of one start.
struct LogStream {
  RunKey run;
  uint32_t rank = 0;
  auto operator<=>(const LogStream&) const = default;
};

/// metrics.db: metrics and other events, and the index of the logs. All writes of it. Owned by the core
/// thread. Writes belong to one batch until Commit().
class MetricsStore {
 public:
  static Result<MetricsStore> Open(const std::filesystem::path& folder);

  /// An event that is there already, by its run, rank and sequence, is left as it is. Every few hundred step
  /// reports of a job become history (history.h); the newest few thousand stay as events too. Of class
  /// figures, which are large, the newest few stay.
  void AppendEvent(const MetricEvent& event);
  /// Where a rank's time went in the steps up to this one: kept coarsely (rank_times.h), and stored some
  /// seconds after `now`, or when a rank of the job ends.
  void NoteRankTimes(RunKey run, uint32_t rank, uint64_t step, Instant now, const RankCell& did);
  /// Nothing of the job is left: events, history, positions of its logs.
  void RemoveJob(JobId job);
  /// Of its figures nothing is left; of its logs nothing is.
  void RemoveFigures(JobId job);
  void RemoveLogs(JobId job);
  void SaveLogPosition(const LogStream& stream, const LogPosition& position);
  void Fail(Error error) { batch_->Fail(std::move(error)); }

  bool HasWrites() const { return batch_->open(); }
  Status Commit();
  void Rollback();

  /// Number of the job's newest event in this file; 0 for none.
  Result<uint64_t> LastEventNumber(JobId job);
  Result<LogPosition> LogPositionOf(const LogStream& stream);
  Result<std::map<uint32_t, uint64_t>> LastLines(RunKey run);
  /// Of the jobs that have logs, about how many bytes, a file that is full having `segment_bytes`.
  Result<std::map<JobId, uint64_t>> LogSizes(uint64_t segment_bytes);
  /// Whether RemoveFigures() has something to remove.
  Result<bool> HasFigures(JobId job);
  /// Bytes of the file that hold something. What was removed leaves room in it, which is used again.
  Result<uint64_t> UsedBytes();

 private:
  explicit MetricsStore(Database database);
  void StoreRankTimes(JobId job);
  void ForgetWhatIsNotStored();

  std::unique_ptr<Database> database_;  // its address is batch_'s
  std::unique_ptr<WriteBatch> batch_;
  /// How many step reports of a job are not history yet, about: of each job that has had one since the start.
  std::map<JobId, uint64_t> unsealed_;
  struct LiveRanks {
    RankTimes times;
    Instant stored{};  ///< by this machine's clock: the ranks' may be hours apart
  };
  std::map<JobId, LiveRanks> live_ranks_;  ///< of jobs whose ranks reported lately
};

}  // namespace imgd
