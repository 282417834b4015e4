#include "server/auth/methods.h"

namespace imgd {

const std::map<std::string_view, Scope>& MethodScopes() {
  static const std::map<std::string_view, Scope> scopes = {
      {"imgd.v1.JobService/SubmitJob", Scope::kSubmit},
      {"imgd.v1.JobService/CancelJob", Scope::kSubmit},
      {"imgd.v1.JobService/ChangeJob", Scope::kSubmit},
      {"imgd.v1.JobService/ProfileJob", Scope::kSubmit},
      {"imgd.v1.JobService/CancelSweep", Scope::kSubmit},
      {"imgd.v1.JobService/GetJob", Scope::kView},
      {"imgd.v1.JobService/ListJobs", Scope::kView},
      {"imgd.v1.JobService/WatchJob", Scope::kView},
      {"imgd.v1.JobService/ReadLogs", Scope::kView},
      {"imgd.v1.JobService/ListLogs", Scope::kView},
      {"imgd.v1.JobService/GetMetrics", Scope::kView},
      {"imgd.v1.JobService/GetSweep", Scope::kView},
      {"imgd.v1.JobService/ListCheckpoints", Scope::kView},
      {"imgd.v1.JobService/GetClasses", Scope::kView},
      {"imgd.v1.JobService/GetSamples", Scope::kView},
      {"imgd.v1.JobService/DeleteJob", Scope::kSubmit},
      {"imgd.v1.NodeService/ListNodes", Scope::kView},
      {"imgd.v1.NodeService/GetNode", Scope::kView},
      {"imgd.v1.NodeService/SetAsideNode", Scope::kOperate},
      {"imgd.v1.NodeService/ReturnNode", Scope::kOperate},
      {"imgd.v1.NodeService/ForgetNode", Scope::kOperate},
      {"imgd.v1.EventService/ListEvents", Scope::kView},
      {"imgd.v1.EventService/WatchEvents", Scope::kView},
      {"imgd.v1.DatasetService/ListDatasets", Scope::kView},
      {"imgd.v1.DatasetService/GetDataset", Scope::kView},
      {"imgd.v1.DatasetService/RegisterDataset", Scope::kSubmit},
      {"imgd.v1.DatasetService/ReportDataset", Scope::kSubmit},
      {"imgd.v1.DatasetService/RemoveDataset", Scope::kSubmit},
      {"imgd.v1.TokenService/CreateToken", Scope::kAdmin},
      {"imgd.v1.TokenService/ListTokens", Scope::kAdmin},
      {"imgd.v1.TokenService/RevokeToken", Scope::kAdmin},
      {"imgd.v1.AdminService/Backup", Scope::kAdmin},  // the CA's key is in it
      {"imgd.v1.AdminService/Reload", Scope::kAdmin},
      {"imgd.v1.AdminService/ShowRetention", Scope::kAdmin},
      {"imgd.v1.UsageService/ListUsage", Scope::kView},
      {"imgd.v1.UsageService/ListUsageOverTime", Scope::kView},
      {"imgd.v1.AgentService/Connect", Scope::kAgent},
      {"imgd.v1.SessionService/OpenSession", Scope::kOperate},
      {"imgd.v1.SessionService/ServeSession", Scope::kAgent},
      {"imgd.v1.EnrolService/Enrol", Scope::kOpen},  // by a join token
      {"imgd.v1.EnrolService/Renew", Scope::kOpen},  // by the node's key
      {"imgd.v1.EnrolService/CreateJoinToken", Scope::kAdmin},
      {"imgd.v1.EnrolService/ListJoinTokens", Scope::kAdmin},
      {"imgd.v1.EnrolService/RevokeJoinToken", Scope::kAdmin},
      {"imgd.v1.EnrolService/RevokeNode", Scope::kAdmin},
      {"grpc.health.v1.Health/Check", Scope::kOpen},
      {"grpc.health.v1.Health/Watch", Scope::kOpen},
      {"grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Scope::kView},
  };
  return scopes;
}

Scope ScopeOfMethod(std::string_view method) {
  if (method.starts_with('/')) method.remove_prefix(1);
  const auto found = MethodScopes().find(method);
  return found == MethodScopes().end() ? Scope::kAdmin : found->second;
}

}  // namespace imgd
