#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_interceptor.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "server/auth/tokens.h"
#include "server/engine/engine.h"

namespace imgd {

/// Who calls, where a token says so: jobs, and what people do, then belong to the token's owner, whatever the
/// request says. Thread-safe. The engine must outlive it.
class Callers {
 public:
  explicit Callers(const Engine* engine);

  /// Metadata of a call in this process for somebody whose token was looked at already; nobody outside this
  /// process can make it.
  std::pair<std::string, std::string> MarkOf(const std::string& token) const;

  /// Name of the token that the call came with; empty for none.
  std::string TokenOf(const grpc::ServerContextBase& context) const;
  /// Its owner; empty for none.
  std::string OwnerOf(const grpc::ServerContextBase& context) const;

  /// An open stream of the token; it is forgotten by the number that is returned.
  uint64_t Remember(std::string token, grpc::ServerContextBase* stream);
  void Forget(uint64_t number);
  /// Ends all open streams of tokens that let nobody in any more.
  void EndStreamsOf(const IsTokenOver& is_over);

 private:
  struct OpenStream {
    std::string token;
    grpc::ServerContextBase* context;
  };
  const Engine* engine_;
  std::string key_;
  /// Guards all below. Recursive: a stream's end, which forgets it, may come within EndStreamsOf().
  std::recursive_mutex mutex_;
  std::map<uint64_t, OpenStream> streams_;
  uint64_t last_ = 0;
};

/// Has gRPC's server put the owner of a call's token into what it asks for, and remember streams. `callers`
/// must outlive the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> NamingBy(Callers* callers);

}  // namespace imgd
