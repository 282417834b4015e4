#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "imgd/v1/admin.grpc.pb.h"
#include "server/auth/gate.h"
#include "server/engine/engine.h"
#include "server/engine/read_pool.h"
#include "server/rpc/retention.h"

namespace imgd {

/// What became of new values: the keys of imgd.yaml that have them from now on, and those that have them once
/// imgd is started again.
struct ConfigChanges {
  std::vector<std::string> changed;
  std::vector<std::string> need_restart;
};

/// Has the configuration read again for `actor`; `done` gets what came of it, or each error with its place.
using ReloadAnswer = tl::expected<ConfigChanges, std::vector<Error>>;
using ReloadFunction = std::function<void(std::string actor, std::function<void(ReloadAnswer)> done)>;

/// AdminService on the engine, the reading threads and the gate, which must outlive it. Thread-safe.
class AdminServiceImpl final : public v1::AdminService::CallbackService {
 public:
  AdminServiceImpl(Engine* engine, ReadPool* pool, const Gate* gate, const Clock* clock,
                   ReloadFunction reload)
      : engine_(engine), pool_(pool), gate_(gate), clock_(clock), reload_(std::move(reload)) {}

  grpc::ServerWriteReactor<v1::BackupResponse>* Backup(grpc::CallbackServerContext* context,
                                                       const v1::BackupRequest* request) override;
  grpc::ServerUnaryReactor* Reload(grpc::CallbackServerContext* context, const v1::ReloadRequest* request,
                                   v1::ReloadResponse* response) override;
  grpc::ServerUnaryReactor* ShowRetention(grpc::CallbackServerContext* context,
                                          const v1::ShowRetentionRequest* request,
                                          v1::ShowRetentionResponse* response) override;
  /// That ShowRetention tells of from now on.
  void SetRules(RetentionRules rules);

 private:
  Engine* engine_;
  ReadPool* pool_;
  const Gate* gate_;
  const Clock* clock_;
  ReloadFunction reload_;
  std::mutex mutex_;
  RetentionRules rules_;  // guarded by mutex_
  /// One backup at a time: each needs as much room as the databases.
  std::shared_ptr<std::atomic<bool>> busy_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace imgd
