#include "server/web/api.h"

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
  caller->Call(method, std::move(message), [pool, answer](ApiCaller::Reply reply) {
    const size_t bytes = reply ? (*reply)->ByteSizeLong() : 0;
    const auto kept = std::make_shared<ApiCaller::Reply>(std::move(reply));
    RunBySize(pool, bytes, answer, [kept, answer] { answer(ResponseOf(*kept)); });
  });
}

}  // namespace

const std::vector<ApiRoute>& ApiRoutes() {
  static const std::vector<ApiRoute> routes = {
      {"GET", "/api/v1/jobs", "JobService.ListJobs", Scope::kView},
      {"POST", "/api/v1/jobs", "JobService.SubmitJob", Scope::kSubmit},
      {"GET", "/api/v1/jobs/{id}", "JobService.GetJob", Scope::kView},
      {"POST", "/api/v1/jobs/{id}/cancel", "JobService.CancelJob", Scope::kSubmit},
      {"POST", "/api/v1/jobs/{id}/change", "JobService.ChangeJob", Scope::kSubmit},
      {"POST", "/api/v1/jobs/{id}/profile", "JobService.ProfileJob", Scope::kSubmit},
      {"GET", "/api/v1/jobs/{id}/logs", "JobService.ListLogs", Scope::kView},
      {"GET", "/api/v1/jobs/{id}/metrics", "JobService.GetMetrics", Scope::kView},
      {"GET", "/api/v1/sweeps/{id}", "JobService.GetSweep", Scope::kView},
      {"POST", "/api/v1/sweeps/{id}/cancel", "JobService.CancelSweep", Scope::kSubmit},
      {"GET", "/api/v1/nodes", "NodeService.ListNodes", Scope::kView},
      {"GET", "/api/v1/nodes/{name}", "NodeService.GetNode", Scope::kView},
      {"POST", "/api/v1/nodes/{name}/set-aside", "NodeService.SetAsideNode", Scope::kOperate},
      {"POST", "/api/v1/nodes/{name}/return", "NodeService.ReturnNode", Scope::kOperate},
      {"GET", "/api/v1/datasets", "DatasetService.ListDatasets", Scope::kView},
      {"POST", "/api/v1/datasets", "DatasetService.RegisterDataset", Scope::kSubmit},
      {"DELETE", "/api/v1/datasets/{name}", "DatasetService.RemoveDataset", Scope::kSubmit},
      {"GET", "/api/v1/tokens", "TokenService.ListTokens", Scope::kAdmin},
      {"POST", "/api/v1/tokens", "TokenService.CreateToken", Scope::kAdmin},
      {"DELETE", "/api/v1/tokens/{name}", "TokenService.RevokeToken", Scope::kAdmin},
      {"GET", "/api/v1/usage", "UsageService.ListUsage", Scope::kView},
      {"GET", "/api/v1/events", "EventService.ListEvents", Scope::kView},
  };
  return routes;
}

const MethodDescriptor& MethodOf(const ApiRoute& route) {
  return *google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(std::string(kPackage) +
                                                                               route.rpc);
}

size_t MostBodyBytes(const ApiRoute& route) {
  if (std::string_view(route.method) != "POST") return 0;
  return std::string_view(route.rpc) == "JobService.SubmitJob" ? kMostSubmitBytes : kMostOtherBytes;
}

std::vector<Route> MakeApiRoutes(ApiCaller* caller, ReadPool* pool) {
  std::vector<Route> out;
  for (const auto& route : ApiRoutes()) {
    const MethodDescriptor* method = &MethodOf(route);
    out.push_back({route.method, route.pattern, route.scope, MostBodyBytes(route),
                   [caller, pool, method](Request request, const Answer& answer) {
                     const size_t bytes = request.body.size();
                     const auto kept = std::make_shared<Request>(std::move(request));
                     RunBySize(pool, bytes, answer, [=] { Ask(caller, pool, *method, *kept, answer); });
                   }});
  }
  return out;
}

}  // namespace imgd::web
