#pragma once

#include "imgd/v1/node.grpc.pb.h"
#include "server/engine/engine.h"
#include "server/engine/read_pool.h"

namespace imgd {

/// NodeService on the engine and the reading threads, which must outlive it. Thread-safe.
class NodeServiceImpl final : public v1::NodeService::CallbackService {
 public:
  NodeServiceImpl(Engine* engine, ReadPool* pool) : engine_(engine), pool_(pool) {}
  grpc::ServerUnaryReactor* ListNodes(grpc::CallbackServerContext* context,
                                      const v1::ListNodesRequest* request,
                                      v1::ListNodesResponse* response) override;
  grpc::ServerUnaryReactor* GetNode(grpc::CallbackServerContext* context, const v1::GetNodeRequest* request,
                                    v1::GetNodeResponse* response) override;
  grpc::ServerUnaryReactor* SetAsideNode(grpc::CallbackServerContext* context,
                                         const v1::SetAsideNodeRequest* request,
                                         v1::SetAsideNodeResponse* response) override;
  grpc::ServerUnaryReactor* ReturnNode(grpc::CallbackServerContext* context,
                                       const v1::ReturnNodeRequest* request,
                                       v1::ReturnNodeResponse* response) override;
  grpc::ServerUnaryReactor* ForgetNode(grpc::CallbackServerContext* context,
                                       const v1::ForgetNodeRequest* request,
                                       v1::ForgetNodeResponse* response) override;

 private:
  /// Ends the call with the node as it then is.
  void Change(NodeOrder order, v1::Node* node, grpc::ServerUnaryReactor* reactor);

  Engine* engine_;
  ReadPool* pool_;
};

}  // namespace imgd
