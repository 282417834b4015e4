#pragma once

#include <memory>
#include <mutex>

#include "imgd/v1/enrol.grpc.pb.h"
#include "server/auth/authority.h"
#include "server/auth/ec2_identity.h"
#include "server/engine/engine.h"
#include "server/engine/refusals.h"

namespace imgd {

/// EnrolService on the engine and the authority, which must outlive it.
class EnrolServiceImpl final : public v1::EnrolService::CallbackService {
 public:
  /// `authority`: null where gRPC is plain text, and then every call is refused.
  EnrolServiceImpl(Engine* engine, const Authority* authority, const Clock* clock)
      : engine_(engine), authority_(authority), clock_(clock) {}
  /// Which EC2 instances join from now on; null: none. Thread-safe.
  void SetEc2Rules(std::shared_ptr<const Ec2Rules> rules);
  grpc::ServerUnaryReactor* Enrol(grpc::CallbackServerContext* context, const v1::EnrolRequest* request,
                                  v1::EnrolResponse* response) override;
  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context, const v1::RenewRequest* request,
                                  v1::RenewResponse* response) override;
  grpc::ServerUnaryReactor* CreateJoinToken(grpc::CallbackServerContext* context,
                                            const v1::CreateJoinTokenRequest* request,
                                            v1::CreateJoinTokenResponse* response) override;
  grpc::ServerUnaryReactor* ListJoinTokens(grpc::CallbackServerContext* context,
                                           const v1::ListJoinTokensRequest* request,
                                           v1::ListJoinTokensResponse* response) override;
  grpc::ServerUnaryReactor* RevokeJoinToken(grpc::CallbackServerContext* context,
                                            const v1::RevokeJoinTokenRequest* request,
                                            v1::RevokeJoinTokenResponse* response) override;
  grpc::ServerUnaryReactor* RevokeNode(grpc::CallbackServerContext* context,
                                       const v1::RevokeNodeRequest* request,
                                       v1::RevokeNodeResponse* response) override;

 private:
  template <typename Response>
  grpc::ServerUnaryReactor* Certify(grpc::CallbackServerContext* context, JoinOrder order,
                                    const std::string& request_pem, Response* response);
  /// What is wrong with an order: of itself, and by what is stored now. Fills in what the request says of it.
  Status LookAt(JoinOrder& order, const std::string& request_pem, WallTime now);
  Result<InstanceClaim> ClaimOf(const v1::Ec2Identity& identity);
  /// An event of a machine that was not let in, and a line in the log, as far as Refusals has them: whoever
  /// reaches the port can have them made.
  void NoteRefusal(const std::string& peer, const std::string& node, const Error& why);

  Engine* engine_;
  const Authority* authority_;
  const Clock* clock_;
  Refusals refusals_{50};
  std::mutex mutex_;
  std::shared_ptr<const Ec2Rules> ec2_;  // guarded by mutex_
};

}  // namespace imgd
