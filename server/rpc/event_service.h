#pragma once

#include "imgd/v1/event.grpc.pb.h"
#include "server/engine/engine.h"
#include "server/engine/read_pool.h"

namespace imgd {

/// EventService on the engine and the reading threads, which must outlive it. Thread-safe; no call holds a
/// thread while it waits.
class EventServiceImpl final : public v1::EventService::CallbackService {
 public:
  EventServiceImpl(Engine* engine, ReadPool* pool, const Clock* clock)
      : engine_(engine), pool_(pool), clock_(clock) {}
  grpc::ServerWriteReactor<v1::WatchEventsResponse>* WatchEvents(
      grpc::CallbackServerContext* context, const v1::WatchEventsRequest* request) override;
  grpc::ServerUnaryReactor* ListEvents(grpc::CallbackServerContext* context,
                                       const v1::ListEventsRequest* request,
                                       v1::ListEventsResponse* response) override;

 private:
  Engine* engine_;
  ReadPool* pool_;
  const Clock* clock_;
};

}  // namespace imgd
