#include "server/rpc/event_service.h"

#include <algorithm>
#include <limits>

#include "server/rpc/convert.h"
#include "server/rpc/errors.h"
#include "server/rpc/streams.h"

namespace imgd {
namespace {

/// Numbers are the database's: none is greater.
constexpr uint64_t kMostNumber = std::numeric_limits<int64_t>::max();

Result<DecisionFilter> PageFilter(const v1::ListEventsRequest& request) {
  constexpr uint32_t kMostOfPage = 1000;
  constexpr uint32_t kUsualPage = 100;
  if (request.page_size() > kMostOfPage) {
    return Fail(ErrorCode::kInvalidArgument, "page_size: found {}; at most {} is allowed",
                request.page_size(), kMostOfPage);
  }
  return DecisionFilter{.after = std::min(request.after_event(), kMostNumber),
                        .job = JobId(std::min(request.job_id(), kMostNumber)),
                        .node = request.node(),
                        .since_us = request.since_us(),
                        .most = request.page_size() == 0 ? kUsualPage : request.page_size(),
                        .newest = request.newest()};
}

Status FillEvents(DecisionFilter filter, Reader& reader, v1::ListEventsResponse& out) {
  IMGD_ASSIGN(const auto range, reader.DecisionRange());
  filter.last = range.second;
  IMGD_ASSIGN(const auto decisions, reader.Decisions(filter));
  for (const auto& decision : decisions) *out.add_events() = ToProto(decision);
  out.set_oldest_number(range.first);
  return {};
}

}  // namespace

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
      filter_{.after = std::min(request.after_event(), kMostNumber),
              .job = JobId(std::min(request.job_id(), kMostNumber)),
              .node = request.node(),
              .since_us = request.since_us()},
      follow_(!request.no_follow()) {}

PumpedStream<v1::WatchEventsResponse>::Step EventStream::Read(Reader& reader,
                                                              std::vector<v1::WatchEventsResponse>& out) {
  const auto fail = [](const Error& error) { return Step{.what = Step::kEnd, .status = ToStatus(error)}; };
  const uint64_t published = Published();  // read first: what is stored by then is among what is read
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
  return {.what = Step::kWait,
          .seen = std::max(range->second, published),
          .deadline = clock_->Now() + kLookAgain};
}

grpc::ServerWriteReactor<v1::WatchEventsResponse>* EventServiceImpl::WatchEvents(
    grpc::CallbackServerContext*, const v1::WatchEventsRequest* request) {
  return EventStream::Start(*request, engine_, pool_, clock_);
}

grpc::ServerUnaryReactor* EventServiceImpl::ListEvents(grpc::CallbackServerContext* context,
                                                       const v1::ListEventsRequest* request,
                                                       v1::ListEventsResponse* response) {
  auto* reactor = context->DefaultReactor();
  const auto filter = PageFilter(*request);
  if (!filter) {
    reactor->Finish(ToStatus(filter.error()));
    return reactor;
  }
  const bool posted = pool_->TryPost([filter = *filter, response, reactor](Reader& reader) {
    const auto filled = FillEvents(filter, reader, *response);
    reactor->Finish(filled ? grpc::Status::OK : ToStatus(filled.error()));
  });
  if (!posted) reactor->Finish(ToStatus(Busy()));
  return reactor;
}

}  // namespace imgd
