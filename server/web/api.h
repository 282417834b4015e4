#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/error.h"
#include "server/auth/tokens.h"
#include "server/engine/read_pool.h"
#include "server/web/router.h"

/// imgd's gRPC calls as JSON over HTTP: the same messages and the same services, by another way in.
namespace imgd::web {

/// Asks imgd's own services. Thread-safe.
class ApiCaller {
 public:
  virtual ~ApiCaller() = default;
  using Reply = tl::expected<std::unique_ptr<google::protobuf::Message>, std::vector<Error>>;
  /// `done` is called once, on any thread, with the answer or with all that is wrong with the request.
  /// `token`: name of the one that the caller was let in by; empty for none.
  virtual void Call(const google::protobuf::MethodDescriptor& method,
                    std::unique_ptr<google::protobuf::Message> request, const std::string& token,
                    std::function<void(Reply)> done) = 0;
};

/// A row of the table: which call a method and path stand for.
struct ApiRoute {
  const char* method;   ///< of HTTP
  const char* pattern;  ///< names in braces are fields of the request
  const char* rpc;      ///< "JobService.GetJob"
};

/// All of them.
const std::vector<ApiRoute>& ApiRoutes();

/// The call's descriptor, never null for a row of the table.
const google::protobuf::MethodDescriptor& MethodOf(const ApiRoute& route);

/// What the call needs, as by gRPC (server/auth/methods.h).
Scope ScopeOf(const ApiRoute& route);

/// What a body of a request may have at most, bytes.
size_t MostBodyBytes(const ApiRoute& route);

/// The table as the router has it. The caller and the pool, which makes the JSON of large answers, must
/// outlive it.
std::vector<Route> MakeApiRoutes(ApiCaller* caller, ReadPool* pool);

}  // namespace imgd::web
