#include "server/rpc/session_service.h"

#include "server/rpc/agent_service.h"
#include "server/rpc/errors.h"

namespace imgd {

grpc::ServerBidiReactor<v1::OpenSessionRequest, v1::OpenSessionResponse>* SessionServiceImpl::OpenSession(
    grpc::CallbackServerContext* context) {
  auto* stream =
      new SessionStream<v1::OpenSessionRequest, v1::OpenSessionResponse>(context);  // deletes itself
  const uint64_t number = relay_.AddPerson(stream->port(), callers_->OwnerOf(*context));
  stream->Begin({.on_message =
                     [this, number](v1::OpenSessionRequest message) {
                       relay_.OnPersonMessage(number, std::move(message));
                     },
                 .on_gone = [this, number] { relay_.OnPersonGone(number); }});
  return stream;
}

grpc::ServerBidiReactor<v1::ServeSessionRequest, v1::ServeSessionResponse>* SessionServiceImpl::ServeSession(
    grpc::CallbackServerContext* context) {
  auto* stream =
      new SessionStream<v1::ServeSessionRequest, v1::ServeSessionResponse>(context);  // deletes itself
  std::string node;
  if (tls_) {
    auto certified = CertifiedNode(*context, *engine_);
    if (!certified) {
      stream->port()->End(ToStatus(certified.error()));
      return stream;
    }
    node = std::move(*certified);
  }
  const uint64_t number = relay_.AddNode(stream->port(), std::move(node));
  stream->Begin({.on_message =
                     [this, number](v1::ServeSessionRequest message) {
                       relay_.OnNodeMessage(number, std::move(message));
                     },
                 .on_gone = [this, number] { relay_.OnNodeGone(number); }});
  return stream;
}

}  // namespace imgd
