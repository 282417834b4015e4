#pragma once

#include <memory>
#include <string>

#include "common/clock.h"
#include "common/error.h"
#include "server/engine/engine.h"
#include "server/engine/read_pool.h"
#include "server/policy/policy.h"
#include "server/rpc/call_times.h"
#include "server/web/api.h"

namespace imgd {

/// The gRPC server with all services, health checking and reflection. Plain text.
class RpcServer {
 public:
  /// What jobs get and may ask for.
  struct JobRules {
    std::string checkpoint_dir;  ///< of jobs that name none
    Policies policies;
    bool commands = false;  ///< jobs may be any program
  };

  /// Listens on "host:port"; port 0 takes a free one. The engine and the pool must outlive it.
  /// Errors: kAlreadyExists when the address is in use, kInvalidArgument when it is none of this machine.
  static Result<std::unique_ptr<RpcServer>> Start(const std::string& address, JobRules rules, Engine* engine,
                                                  ReadPool* pool, const Clock* clock);
  ~RpcServer();

  int port() const;
  /// For what comes in by HTTP; to be used no longer than until Stop().
  web::ApiCaller& caller();
  /// How long its calls took; as long as it lives.
  const CallTimes& calls() const;

  /// Ends agents' streams, lets calls end for up to `patience`, then cancels them. The engine must still run.
  void Stop(Duration patience);

 private:
  struct Parts;
  explicit RpcServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace imgd
