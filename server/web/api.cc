#include "server/web/api.h"

#include "server/auth/methods.h"
#include "server/web/api_request.h"
#include "server/web/errors.h"
#include "server/web/json.h"
#include "server/web/metrics_json.h"

namespace imgd::web {
namespace {

using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

/// A job file of 1 MiB, each byte of which may be six in JSON.
constexpr size_t kMostSubmitBytes = size_t{6} << 20;
constexpr size_t kMostOtherBytes = size_t{64} << 10;
/// Messages that are turned from or into JSON where the request or its answer came in; longer ones on the
/// reading threads.
constexpr size_t kShortBytes = size_t{16} << 10;

constexpr const char* kPackage = "imgd.v1.";

Response ResponseOf(const ApiCaller::Reply& reply) {
  if (!reply) return ApiErrorResponse(reply.error());
  return {.body = ApiJson(**reply)};
}

/// Runs `work` here, or on a reading thread where it would take long.
template <typename Work>
void RunBySize(ReadPool* pool, size_t bytes, const Answer& answer, Work work) {
  if (bytes <= kShortBytes) {
    work();
  } else if (!pool->TryPost([work](Reader&) { work(); })) {
    answer(ApiErrorResponse(
        {{.code = ErrorCode::kResourceExhausted, .message = "too many requests wait already; try again"}}));
  }
}

void Ask(ApiCaller* caller, ReadPool* pool, const MethodDescriptor& method, const Request& request,
         const Answer& answer) {
  std::unique_ptr<Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(method.input_type())->New());
  if (const auto read = ReadRequest(request, *message); !read) {
    answer(ApiErrorResponse({read.error()}));
    return;
  }
  caller->Call(method, std::move(message), request.token, [pool, answer](ApiCaller::Reply reply) {
    const size_t bytes = reply ? (*reply)->ByteSizeLong() : 0;
    const auto kept = std::make_shared<ApiCaller::Reply>(std::move(reply));
    RunBySize(pool, bytes, answer, [kept, answer] { answer(ResponseOf(*kept)); });
  });
}

}  // namespace

const std::vector<ApiRoute>& ApiRoutes() {
  static const std::vector<ApiRoute> routes = {
      {"GET", "/api/v1/jobs", "JobService.ListJobs"},
      {"POST", "/api/v1/jobs", "JobService.SubmitJob"},
      {"GET", "/api/v1/jobs/{id}", "JobService.GetJob"},
      {"POST", "/api/v1/jobs/{id}/cancel", "JobService.CancelJob"},
      {"POST", "/api/v1/jobs/{id}/change", "JobService.ChangeJob"},
      {"POST", "/api/v1/jobs/{id}/profile", "JobService.ProfileJob"},
      {"GET", "/api/v1/jobs/{id}/logs", "JobService.ListLogs"},
      {"GET", "/api/v1/jobs/{id}/metrics", "JobService.GetMetrics"},
      {"GET", "/api/v1/jobs/{id}/checkpoints", "JobService.ListCheckpoints"},
      {"GET", "/api/v1/jobs/{id}/classes", "JobService.GetClasses"},
      {"GET", "/api/v1/jobs/{id}/samples", "JobService.GetSamples"},
      {"DELETE", "/api/v1/jobs/{id}", "JobService.DeleteJob"},
      {"GET", "/api/v1/sweeps/{id}", "JobService.GetSweep"},
      {"POST", "/api/v1/sweeps/{id}/cancel", "JobService.CancelSweep"},
      {"GET", "/api/v1/nodes", "NodeService.ListNodes"},
      {"GET", "/api/v1/nodes/{name}", "NodeService.GetNode"},
      {"POST", "/api/v1/nodes/{name}/set-aside", "NodeService.SetAsideNode"},
      {"POST", "/api/v1/nodes/{name}/return", "NodeService.ReturnNode"},
      {"DELETE", "/api/v1/nodes/{name}", "NodeService.ForgetNode"},
      {"GET", "/api/v1/datasets", "DatasetService.ListDatasets"},
      {"POST", "/api/v1/datasets", "DatasetService.RegisterDataset"},
      {"GET", "/api/v1/datasets/{name}", "DatasetService.GetDataset"},
      {"DELETE", "/api/v1/datasets/{name}", "DatasetService.RemoveDataset"},
      {"GET", "/api/v1/tokens", "TokenService.ListTokens"},
      {"POST", "/api/v1/tokens", "TokenService.CreateToken"},
      {"DELETE", "/api/v1/tokens/{name}", "TokenService.RevokeToken"},
      {"GET", "/api/v1/usage", "UsageService.ListUsage"},
      {"GET", "/api/v1/usage/over-time", "UsageService.ListUsageOverTime"},
      {"GET", "/api/v1/events", "EventService.ListEvents"},
  };
  return routes;
}

const MethodDescriptor& MethodOf(const ApiRoute& route) {
  return *google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(std::string(kPackage) +
                                                                               route.rpc);
}

Scope ScopeOf(const ApiRoute& route) {
  const MethodDescriptor& method = MethodOf(route);
  return ScopeOfMethod(method.service()->full_name() + "/" + method.name());
}

size_t MostBodyBytes(const ApiRoute& route) {
  if (std::string_view(route.method) != "POST") return 0;
  return std::string_view(route.rpc) == "JobService.SubmitJob" ? kMostSubmitBytes : kMostOtherBytes;
}

std::vector<Route> MakeApiRoutes(ApiCaller* caller, ReadPool* pool) {
  std::vector<Route> out;
  for (const auto& route : ApiRoutes()) {
    const MethodDescriptor* method = &MethodOf(route);
    out.push_back({route.method, route.pattern, ScopeOf(route), MostBodyBytes(route),
                   [caller, pool, method](Request request, const Answer& answer) {
                     const size_t bytes = request.body.size();
                     const auto kept = std::make_shared<Request>(std::move(request));
                     RunBySize(pool, bytes, answer, [=] { Ask(caller, pool, *method, *kept, answer); });
                   }});
  }
  return out;
}

}  // namespace imgd::web
