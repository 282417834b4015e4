#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "common/clock.h"
#include "common/error.h"
#include "server/auth/authority.h"
#include "server/auth/ec2_identity.h"
#include "server/engine/engine.h"
#include "server/engine/read_pool.h"
#include "server/policy/policy.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/call_times.h"
#include "server/rpc/job_service.h"
#include "server/rpc/session_relay.h"
#include "server/web/api.h"

namespace imgd {

/// The gRPC server with all services, health checking and reflection.
class RpcServer {
 public:
  enum class Security {
    kTls,    ///< with the authority's certificate; each call needs a token or an agent's certificate
    kLocal,  ///< plain text on 127.0.0.1 or ::1, where this machine's users may do anything while there is no
             ///< admin
    kNone,   ///< plain text, and whoever reaches it may do anything
  };

  /// Where it is reached, and by whom.
  struct Door {
    std::string address;  ///< "host:port"; port 0 takes a free one
    Security security = Security::kLocal;
    const Authority* authority = nullptr;  ///< of kTls; must outlive the server
  };

  /// What jobs get and may ask for.
  using JobRules = JobServiceImpl::OwnRules;

  /// The engine must outlive it. The pool must outlive Stop() and end before it is destroyed: tasks look into
  /// it. `reload` is called for each call that asks for it. Errors: kAlreadyExists when the address is in
  /// use, kUnavailable when it is none of this machine.
  static Result<std::unique_ptr<RpcServer>> Start(const Door& door, JobRules rules, Engine* engine,
                                                  ReadPool* pool, const Clock* clock, ReloadFunction reload);
  ~RpcServer();

  int port() const;
  /// For what comes in by HTTP; to be used no longer than until Stop().
  web::ApiCaller& caller();
  /// `call` is called whenever tokens were taken back or have expired, on the core thread. Before calls come
  /// in.
  void OnTokensOver(std::function<void(const IsTokenOver&)> call);
  /// Ends what is open of tokens that have expired since it began; again and again, on the core thread.
  void EndStreamsOfExpired();
  /// For what is submitted from now on.
  void SetRules(JobRules rules);
  /// Which EC2 instances join from now on; null: none.
  void SetEc2Rules(std::shared_ptr<const Ec2Rules> rules);
  /// As SessionRelay::EndThoseOfBefore(); before the rules are set.
  void EndSessionsOfBefore(ReadPool& pool);
  /// For sessions; until it is called none is allowed.
  void SetRules(SessionRules rules);
  /// That AdminService tells of.
  void SetRules(RetentionRules rules);
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
