#pragma once

#include <map>
#include <optional>
#include <set>

#include "imgd/v1/event.pb.h"
#include "imgd/v1/job.pb.h"
#include "server/engine/engine.h"
#include "server/rpc/pumped_stream.h"
#include "server/store/log_reader.h"

namespace imgd {

/// WatchJob: a job's events by number, from both databases, until it has ended.
class WatchStream final : public PumpedStream<v1::WatchJobResponse> {
 public:
  /// Begins at once; owns itself.
  static WatchStream* Start(const v1::WatchJobRequest& request, Engine* engine, ReadPool* pool,
                            const Clock* clock);

 private:
  WatchStream(const v1::WatchJobRequest& request, Engine* engine, ReadPool* pool, const Clock* clock);
  Step Read(Reader& reader, std::vector<v1::WatchJobResponse>& out) override;

  Engine* engine_;
  const Clock* clock_;
  uint64_t after_;
  bool follow_;
};

/// WatchEvents: the record of decisions by number, until the caller goes.
class EventStream final : public PumpedStream<v1::WatchEventsResponse> {
 public:
  /// Begins at once; owns itself.
  static EventStream* Start(const v1::WatchEventsRequest& request, Engine* engine, ReadPool* pool,
                            const Clock* clock);

 private:
  EventStream(const v1::WatchEventsRequest& request, Engine* engine, ReadPool* pool, const Clock* clock);
  Step Read(Reader& reader, std::vector<v1::WatchEventsResponse>& out) override;

  const Clock* clock_;
  DecisionFilter filter_;
  bool follow_;
};

/// ReadLogs: the stored lines of a job's ranks, then new ones until the job has ended and its logs are quiet;
/// of every later start that has any, where none was asked for.
class LogStreamReader final : public PumpedStream<v1::ReadLogsResponse> {
 public:
  /// Begins at once; owns itself.
  /// Where `attached_by` is not empty an event says that it is who attached, once the job is known.
  static LogStreamReader* Start(const v1::ReadLogsRequest& request, const std::string& attached_by,
                                Engine* engine, ReadPool* pool, const Clock* clock);

 private:
  LogStreamReader(const v1::ReadLogsRequest& request, std::string attached_by, Engine* engine, ReadPool* pool,
                  const Clock* clock);
  Step Read(Reader& reader, std::vector<v1::ReadLogsResponse>& out) override;
  Result<Step> ReadStep(Reader& reader, std::vector<v1::ReadLogsResponse>& out);
  /// Adds lines of all wanted ranks; true when there are more.
  Result<bool> ReadRanks(Reader& reader, v1::ReadLogsResponse& out);
  Step AtEnd(const JobRecord& job, uint64_t seen, bool news);
  void NoteAttached();

  Engine* engine_;
  const Clock* clock_;
  v1::ReadLogsRequest request_;
  std::string attached_by_;               ///< empty once it is noted
  std::optional<Generation> generation_;  ///< that is read; nothing before the first reading
  std::map<uint32_t, LogCursor> cursors_;
  uint32_t next_rank_ = 0;  ///< with which the next reading begins, so that no rank starves
  Instant quiet_since_{};   ///< since when the ended job had no new lines
};

}  // namespace imgd
