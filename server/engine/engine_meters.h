#pragma once

#include <prometheus/histogram.h>

#include <map>

#include "server/core/actions.h"
#include "server/core/census.h"
#include "server/core/shares.h"

namespace imgd {

/// What the engine counts for Prometheus since it began; a copy, of one moment.
struct EngineCounts {
  double jobs_submitted = 0;
  std::map<JobState, double> jobs_ended;  ///< each final state is there
  std::map<ReasonCode, double> restarts;  ///< times that a job went back to the queue, by why
  double spot_notices = 0;
  double nodes_lost = 0;                ///< without a notice that they were to go
  double device_seconds = 0;            ///< that jobs held
  double spend = 0;                     ///< of these, by the nodes' prices
  prometheus::ClientMetric queue_wait;  ///< histograms, in seconds
  prometheus::ClientMetric scheduling;
  prometheus::ClientMetric commit;
};

/// All that imgd shows of its cluster, of one moment.
struct EngineFigures {
  Census census;
  EngineCounts counts;
  uint64_t stale_reports = 0;
  bool in_trouble = false;  ///< nothing can be stored
  std::string currency;     ///< of spend; may be empty
};

/// Counts what the engine does. Of the core thread alone.
class EngineMeters {
 public:
  EngineMeters();

  /// The jobs and accounts that there are when it begins: what they have had counts from there.
  void Begin(const std::map<JobId, JobRecord>& jobs, const std::vector<AccountUse>& accounts, WallTime now);
  /// Once it is stored.
  void OnEvent(const AppendEvent& event);
  void OnDecision(const AppendDecision& decision);
  void NoteScheduling(Duration took);
  void NoteCommit(Duration took);
  EngineCounts Counts(const std::vector<AccountUse>& accounts, WallTime now);

 private:
  /// A job in the queue.
  struct Waiting {
    WallTime since;
    bool held = false;  ///< for what it asked for itself: such waiting is none for devices
  };
  void NoteQueued(const AppendEvent& event);
  void NoteStarting(const AppendEvent& event);
  void TakeUse(const std::vector<AccountUse>& accounts, WallTime now);

  EngineCounts counts_;  ///< without its histograms
  std::map<JobId, Waiting> waiting_;
  Tally used_;  ///< by all users, when it was looked at last
  prometheus::Histogram queue_wait_;
  prometheus::Histogram scheduling_;
  prometheus::Histogram commit_;
};

}  // namespace imgd
