#pragma once

#include "imgd/v1/usage.grpc.pb.h"
#include "server/engine/engine.h"
#include "server/engine/read_pool.h"

namespace imgd {

/// UsageService on the engine and the reading pool, which must outlive it. Thread-safe.
class UsageServiceImpl final : public v1::UsageService::CallbackService {
 public:
  UsageServiceImpl(Engine* engine, ReadPool* pool, const Clock* clock)
      : engine_(engine), pool_(pool), clock_(clock) {}
  grpc::ServerUnaryReactor* ListUsage(grpc::CallbackServerContext* context,
                                      const v1::ListUsageRequest* request,
                                      v1::ListUsageResponse* response) override;
  grpc::ServerUnaryReactor* ListUsageOverTime(grpc::CallbackServerContext* context,
                                              const v1::ListUsageOverTimeRequest* request,
                                              v1::ListUsageOverTimeResponse* response) override;

 private:
  Engine* engine_;
  ReadPool* pool_;
  const Clock* clock_;
};

}  // namespace imgd
