#include "server/rpc/node_service.h"

#include "server/rpc/convert.h"
#include "server/rpc/errors.h"
#include "server/rpc/limits.h"

namespace imgd {
namespace {

constexpr size_t kMostRuns = 100;

Status FillNode(const std::string& name, const ClusterView& view, Reader& reader, v1::GetNodeResponse& out) {
  IMGD_ASSIGN(*out.mutable_node(), NodeOf(name, view));
  AddRecentBusy(view, *out.mutable_node());
  IMGD_ASSIGN(const auto runs, reader.NodeRuns(NodeId(name), kMostRuns));
  for (const auto& run : runs) *out.add_runs() = ToProto(run);
  out.set_warning(view.trouble);
  return {};
}

std::string ActorOrUnknown(const std::string& actor) { return actor.empty() ? "unknown" : actor; }

}  // namespace

grpc::ServerUnaryReactor* NodeServiceImpl::ListNodes(grpc::CallbackServerContext* context,
                                                     const v1::ListNodesRequest*,
                                                     v1::ListNodesResponse* response) {
  auto* reactor = context->DefaultReactor();
  const auto view = engine_->View();
  FillNodes(*view, *response);
  for (auto& node : *response->mutable_nodes()) AddRecentBusy(*view, node);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* NodeServiceImpl::GetNode(grpc::CallbackServerContext* context,
                                                   const v1::GetNodeRequest* request,
                                                   v1::GetNodeResponse* response) {
  auto* reactor = context->DefaultReactor();
  const bool posted = pool_->TryPost([this, request, response, reactor](Reader& reader) {
    const auto filled = FillNode(request->name(), *engine_->View(), reader, *response);
    reactor->Finish(filled ? grpc::Status::OK : ToStatus(filled.error()));
  });
  if (!posted) reactor->Finish(ToStatus(Busy()));
  return reactor;
}

void NodeServiceImpl::Change(NodeOrder order, v1::Node* node, grpc::ServerUnaryReactor* reactor) {
  const std::string name = order.node.name();
  engine_->ChangeNode(std::move(order), [this, name, node, reactor](const Status& status) {
    if (!status) {
      reactor->Finish(ToStatus(status.error()));
      return;
    }
    const auto now = NodeOf(name, *engine_->View());
    if (now) *node = *now;
    reactor->Finish(now ? grpc::Status::OK : ToStatus(now.error()));
  });
}

grpc::ServerUnaryReactor* NodeServiceImpl::SetAsideNode(grpc::CallbackServerContext* context,
                                                        const v1::SetAsideNodeRequest* request,
                                                        v1::SetAsideNodeResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (const auto checked = CheckLimits(*request); !checked) {
    reactor->Finish(ToStatus(checked.error()));
    return reactor;
  }
  Change({.what = request->drain() ? NodeOrder::What::kDrain : NodeOrder::What::kCordon,
          .node = NodeId(request->name()),
          .reason = request->reason(),
          .actor = ActorOrUnknown(request->actor())},
         response->mutable_node(), reactor);
  return reactor;
}

grpc::ServerUnaryReactor* NodeServiceImpl::ReturnNode(grpc::CallbackServerContext* context,
                                                      const v1::ReturnNodeRequest* request,
                                                      v1::ReturnNodeResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (const auto checked = CheckLimits(*request); !checked) {
    reactor->Finish(ToStatus(checked.error()));
    return reactor;
  }
  Change({.what = request->drained() ? NodeOrder::What::kUndrain : NodeOrder::What::kUncordon,
          .node = NodeId(request->name()),
          .actor = ActorOrUnknown(request->actor())},
         response->mutable_node(), reactor);
  return reactor;
}

grpc::ServerUnaryReactor* NodeServiceImpl::ForgetNode(grpc::CallbackServerContext* context,
                                                      const v1::ForgetNodeRequest* request,
                                                      v1::ForgetNodeResponse*) {
  auto* reactor = context->DefaultReactor();
  if (const auto checked = CheckLimits(*request); !checked) {
    reactor->Finish(ToStatus(checked.error()));
    return reactor;
  }
  engine_->ChangeNode({.what = NodeOrder::What::kForget,
                       .node = NodeId(request->name()),
                       .actor = ActorOrUnknown(request->actor())},
                      [reactor](const Status& status) {
                        reactor->Finish(status ? grpc::Status::OK : ToStatus(status.error()));
                      });
  return reactor;
}

}  // namespace imgd
