#include "server/rpc/event_service.h"

#include <algorithm>
#include <limits>

#include "server/rpc/convert.h"
#include "server/rpc/errors.h"
#include "server/rpc/streams.h"

namespace imgd {

EventStream* EventStream::Start(const v1::WatchEventsRequest& request, Engine* engine, ReadPool* pool,
                                const Clock* clock) {
  auto* stream = new EventStream(request, engine, pool, clock);  // deleted by gRPC through OnDone()
  stream->Pump();
  return stream;
}

EventStream::EventStream(const v1::WatchEventsRequest& request, Engine* engine, ReadPool* pool,
                         const Clock* clock)
    : PumpedStream(pool, &engine->events(), kDecisionsTopic),
      clock_(clock),
      // Numbers are the database's: none is greater.
      filter_{.after = std::min<uint64_t>(request.after_event(), std::numeric_limits<int64_t>::max()),
              .job = JobId(std::min<uint64_t>(request.job_id(), std::numeric_limits<int64_t>::max())),
              .node = request.node(),
              .since_us = request.since_us()},
      follow_(!request.no_follow()) {}

PumpedStream<v1::WatchEventsResponse>::Step EventStream::Read(Reader& reader,
                                                              std::vector<v1::WatchEventsResponse>& out) {
  const auto fail = [](const Error& error) { return Step{.what = Step::kEnd, .status = ToStatus(error)}; };
  // All of a decision is in one database, so that whatever can be read is whole.
  const auto range = reader.DecisionRange();
  if (!range) return fail(range.error());
  filter_.last = range->second;
  const auto decisions = reader.Decisions(filter_);
  if (!decisions) return fail(decisions.error());
  for (const auto& decision : *decisions) {
    auto& response = out.emplace_back();
    *response.mutable_event() = ToProto(decision);
    response.set_oldest_number(range->first);
    filter_.after = decision.number;
  }
  if (decisions->size() == filter_.most) return {.what = Step::kMore};
  filter_.after = std::max(filter_.after, range->second);  // what is not wanted is not looked at again
  if (!follow_) return {.what = Step::kEnd};
  return {.what = Step::kWait, .seen = range->second, .deadline = clock_->Now() + kLookAgain};
}

grpc::ServerWriteReactor<v1::WatchEventsResponse>* EventServiceImpl::WatchEvents(
    grpc::CallbackServerContext*, const v1::WatchEventsRequest* request) {
  return EventStream::Start(*request, engine_, pool_, clock_);
}

}  // namespace imgd
