#pragma once

#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/core/sweep.h"
#include "server/core/types.h"
#include "server/store/database.h"
#include "server/store/history_reader.h"
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
  JobId from;                    ///< only this one and newer ones
  size_t most = 100;
};

/// A line of the record of decisions.
struct StoredDecision {
  uint64_t number = 0;
  int64_t time_us = 0;
  JobId job;              ///< JobId() for none
  Generation generation;  ///< of a change of a job, like the two states
  int from = 0;
  int to = 0;
  std::string node;  ///< empty for none
  int reason = 0;
  std::string text;
  std::string actor;
};

/// Which decisions are wanted.
struct DecisionFilter {
  uint64_t after = 0;  ///< greater numbers only
  uint64_t last = 0;   ///< none greater
  JobId job;           ///< JobId() for all
  std::string node;    ///< about it, or changes of runs that are or were on it; empty for all
  int64_t since_us = 0;
  size_t most = 256;
  bool newest = false;  ///< the last ones that fit, instead of the first
};

/// A part of one start of a job on a node.
struct NodeRunRow {
  RunKey run;
  std::string job_name;
  uint32_t first_rank = 0;
  uint32_t ranks = 0;
  int64_t started_us = 0;
  int64_t ended_us = 0;  ///< 0 while it has not
  std::string ended_text;
};

/// A start of a job, and what the job took over all of its starts.
struct StartUse {
  JobId job;  ///< JobId() for one that was deleted, of which each start stands for itself
  std::string owner;
  double device_seconds = 0;  ///< of the job
  double cost = 0;            ///< of the job
  int64_t started_us = 0;
  int64_t ended_us = 0;  ///< 0 while it has not
  uint32_t ranks = 0;
  int64_t counted_us = 0;  ///< until when the job's use is counted, while it has not ended; 0: never was
};

/// A job, for who looks after what it leaves.
struct JobEnd {
  JobId id;
  bool ended = false;
  WallTime at;  ///< when it ended
  std::string checkpoint_dir;
  bool by_hand = false;  ///< somebody started it, in a folder that is not imgd's
};

/// What is known of a data set, serialized; empty where nothing is.
struct DatasetFactsRow {
  std::string contents;      ///< v1::DatasetContents
  std::string verification;  ///< v1::DatasetVerification
};

/// Reads both databases, read-only. Not thread-safe: each reading thread has its own.
class Reader {
 public:
  /// The databases must exist.
  static Result<Reader> Open(const std::filesystem::path& folder);

  Result<std::optional<JobRow>> Job(JobId id, bool with_yaml);
  /// Newest first.
  Result<std::vector<JobRow>> Jobs(const JobFilter& filter);
  /// The sweep that the job belongs to; and the newest one of that name.
  Result<std::optional<SweepRecord>> SweepWith(JobId job);
  Result<std::optional<SweepRecord>> SweepNamed(const std::string& name);
  /// Changes of the job's state, oldest first.
  Result<std::vector<StoredEvent>> History(JobId job);
  /// Events with numbers above `after` and up to `last`, by number, at most `most`.
  Result<std::vector<StoredEvent>> Events(JobId job, uint64_t after, uint64_t last, size_t most);
  /// Number of the job's newest event; 0 for none.
  Result<uint64_t> LastEventNumber(JobId job);
  /// The newest event of a kind.
  Result<std::optional<StoredEvent>> Latest(JobId job, EventKind kind);
  /// The newest ones with numbers below `before`, the newest first.
  Result<std::vector<StoredEvent>> Newest(JobId job, EventKind kind, size_t most,
                                          uint64_t before = std::numeric_limits<int64_t>::max());
  /// Oldest first.
  Result<std::vector<StoredDecision>> Decisions(const DecisionFilter& filter);
  /// Numbers of the oldest and the newest decision; 0 for none.
  Result<std::pair<uint64_t, uint64_t>> DecisionRange();
  /// Newest first.
  Result<std::vector<NodeRunRow>> NodeRuns(const NodeId& node, size_t most);
  /// Every start of those jobs that took anything and had not ended at `since_us`; by job.
  Result<std::vector<StartUse>> Starts(int64_t since_us);
  Result<DatasetFactsRow> DatasetFacts(const std::string& name);
  /// Each rank's log of one start.
  Result<std::map<uint32_t, LogPosition>> LogPositions(RunKey run);
  /// The first start after that one of which there is a log.
  Result<std::optional<Generation>> NextStartWithLog(JobId job, Generation after);
  /// Where its ranks' time went; see rank_times.h.
  Result<std::vector<RankStretch>> RankTimes(JobId job);
  /// Every job's end and its folder of checkpoints, those that have ended by the time of it, then the others.
  Result<std::vector<JobEnd>> JobEnds();
  /// Whether the text stands in the file of a job that has not ended.
  Result<bool> StandsInLiveFile(const std::string& text);
  /// As MetricsStore's functions of these names.
  Result<std::map<JobId, uint64_t>> LogSizes(uint64_t segment_bytes);
  Result<uint64_t> UsedMetricsBytes();
  /// About how many bytes the job's figures are.
  Result<uint64_t> FigureBytes(JobId job);
  /// What the job's figures were; see ReadCurves().
  Result<std::vector<Curve>> Curves(JobId job, const CurveQuery& query);

 private:
  Reader(Database state, Database metrics);

  Database state_;
  Database metrics_;
};

}  // namespace imgd
