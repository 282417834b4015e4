#pragma once

#include "imgd/v1/usage.grpc.pb.h"
#include "server/engine/engine.h"

namespace imgd {

/// UsageService on the engine, which must outlive it. Thread-safe.
class UsageServiceImpl final : public v1::UsageService::CallbackService {
 public:
  UsageServiceImpl(Engine* engine, const Clock* clock) : engine_(engine), clock_(clock) {}
  grpc::ServerUnaryReactor* ListUsage(grpc::CallbackServerContext* context,
                                      const v1::ListUsageRequest* request,
                                      v1::ListUsageResponse* response) override;

 private:
  Engine* engine_;
  const Clock* clock_;
};

}  // namespace imgd
