#include <algorithm>
#include <limits>

#include "server/rpc/convert.h"
#include "server/rpc/errors.h"
#include "server/rpc/streams.h"

namespace imgd {
namespace {

constexpr size_t kMostEvents = 256;

/// Up to which number the job's events may be read: those of a batch that is just being stored may be in one
/// database and not yet in the other.
Result<uint64_t> ReadableUpTo(const Engine& engine, Reader& reader, JobId job) {
  if (const uint64_t published = engine.PublishedEvent(job); published != 0) return published;
  IMGD_ASSIGN(const uint64_t stored, reader.LastEventNumber(job));
  const uint64_t published = engine.PublishedEvent(job);
  return published != 0 ? published : stored;
}

}  // namespace

WatchStream* WatchStream::Start(const v1::WatchJobRequest& request, Engine* engine, ReadPool* pool,
                                const Clock* clock) {
  auto* stream = new WatchStream(request, engine, pool, clock);  // deleted by gRPC through OnDone()
  stream->Pump();
  return stream;
}

WatchStream::WatchStream(const v1::WatchJobRequest& request, Engine* engine, ReadPool* pool,
                         const Clock* clock)
    : PumpedStream(pool, &engine->events(), JobId(request.id())),
      engine_(engine),
      clock_(clock),
      // Event numbers are the database's: none is greater.
      after_(std::min<uint64_t>(request.after_event(), std::numeric_limits<int64_t>::max())),
      follow_(!request.no_follow()) {}

PumpedStream<v1::WatchJobResponse>::Step WatchStream::Read(Reader& reader,
                                                           std::vector<v1::WatchJobResponse>& out) {
  const auto fail = [](const Error& error) { return Step{.what = Step::kEnd, .status = ToStatus(error)}; };
  const auto row = reader.Job(job(), false);
  if (!row) return fail(row.error());
  if (!*row) return fail(NoJob(job()));
  // Read after the row: the event that made it final is among these.
  const auto newest = reader.LastEventNumber(job());
  if (!newest) return fail(newest.error());
  const auto readable = ReadableUpTo(*engine_, reader, job());
  if (!readable) return fail(readable.error());
  const auto events = reader.Events(job(), after_, *readable, kMostEvents);
  if (!events) return fail(events.error());
  bool ended = false;
  for (const auto& event : *events) {
    *out.emplace_back().mutable_event() = ToProto(event);
    after_ = event.number;
    ended |= event.kind == EventKind::kStateChange && IsFinal(static_cast<JobState>(event.to));
  }
  // A job that ended after its row was read: the row says so by now, and nothing else will come.
  const bool row_is_old = ended && !IsFinal((*row)->job.state);
  if (events->size() == kMostEvents || row_is_old) return {.what = Step::kMore};
  if (after_ < *readable) after_ = *readable;  // numbers of events that were never stored
  if (!follow_ || (IsFinal((*row)->job.state) && after_ >= *newest)) return {.what = Step::kEnd};
  return {.what = Step::kWait, .seen = *readable, .deadline = clock_->Now() + kLookAgain};
}

}  // namespace imgd
