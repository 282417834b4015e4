#include "server/rpc/callers.h"

#include <grpcpp/support/interceptor.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "imgd/v1/admin.pb.h"
#include "imgd/v1/dataset.pb.h"
#include "imgd/v1/enrol.pb.h"
#include "imgd/v1/job.pb.h"
#include "imgd/v1/node.pb.h"
#include "imgd/v1/token.pb.h"
#include "server/auth/gate.h"

namespace imgd {
namespace {

using grpc::experimental::ServerRpcInfo;
using HookPoint = grpc::experimental::InterceptionHookPoints;
using Naming = std::function<void(void* request, const std::string& name)>;

constexpr const char* kMark = "imgd-caller";

template <typename Request>
Naming ActorOf() {
  return [](void* request, const std::string& name) { static_cast<Request*>(request)->set_actor(name); };
}

/// The calls in whose requests a name stands for who asks.
const Naming* NamingOf(std::string_view method) {
  static const std::map<std::string_view, Naming> namings = {
      {"/imgd.v1.JobService/SubmitJob",
       [](void* request, const std::string& name) {
         static_cast<v1::SubmitJobRequest*>(request)->set_owner(name);
       }},
      {"/imgd.v1.JobService/CancelJob", ActorOf<v1::CancelJobRequest>()},
      {"/imgd.v1.JobService/CancelSweep", ActorOf<v1::CancelSweepRequest>()},
      {"/imgd.v1.JobService/ChangeJob", ActorOf<v1::ChangeJobRequest>()},
      {"/imgd.v1.JobService/DeleteJob", ActorOf<v1::DeleteJobRequest>()},
      {"/imgd.v1.NodeService/SetAsideNode", ActorOf<v1::SetAsideNodeRequest>()},
      {"/imgd.v1.NodeService/ReturnNode", ActorOf<v1::ReturnNodeRequest>()},
      {"/imgd.v1.NodeService/ForgetNode", ActorOf<v1::ForgetNodeRequest>()},
      {"/imgd.v1.DatasetService/ReportDataset", ActorOf<v1::ReportDatasetRequest>()},
      {"/imgd.v1.AdminService/Backup", ActorOf<v1::BackupRequest>()},
      {"/imgd.v1.AdminService/Reload", ActorOf<v1::ReloadRequest>()},
      {"/imgd.v1.EnrolService/RevokeNode", ActorOf<v1::RevokeNodeRequest>()},
      {"/imgd.v1.EnrolService/RevokeJoinToken", ActorOf<v1::RevokeJoinTokenRequest>()},
      {"/imgd.v1.TokenService/CreateToken", ActorOf<v1::CreateTokenRequest>()},
      {"/imgd.v1.TokenService/RevokeToken", ActorOf<v1::RevokeTokenRequest>()},
      {"/imgd.v1.EnrolService/CreateJoinToken",
       [](void* request, const std::string& name) {
         static_cast<v1::CreateJoinTokenRequest*>(request)->set_owner(name);
       }},
      {"/imgd.v1.DatasetService/RegisterDataset",
       [](void* request, const std::string& name) {
         static_cast<v1::RegisterDatasetRequest*>(request)->mutable_dataset()->set_owner(name);
       }},
  };
  const auto found = namings.find(method);
  return found == namings.end() ? nullptr : &found->second;
}

std::string_view MetadataOf(const grpc::ServerContextBase& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  return found == context.client_metadata().end()
             ? std::string_view()
             : std::string_view(found->second.data(), found->second.size());
}

class NamingInterceptor final : public grpc::experimental::Interceptor {
 public:
  NamingInterceptor(Callers* callers, const Naming* naming, ServerRpcInfo* info)
      : callers_(callers), naming_(naming), context_(info->server_context()) {}
  ~NamingInterceptor() override {
    if (stream_ != 0) callers_->Forget(stream_);
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(HookPoint::POST_RECV_INITIAL_METADATA) && naming_ == nullptr) {
      if (std::string token = callers_->TokenOf(*context_); !token.empty())
        stream_ = callers_->Remember(std::move(token), context_);
    }
    if (methods->QueryInterceptionHookPoint(HookPoint::POST_RECV_MESSAGE) && naming_ != nullptr) {
      const std::string owner = callers_->OwnerOf(*context_);
      void* request = methods->GetRecvMessage();
      if (!owner.empty() && request != nullptr) (*naming_)(request, owner);
    }
    methods->Proceed();
  }

 private:
  Callers* callers_;
  const Naming* naming_;  ///< null for a stream
  grpc::ServerContextBase* context_;
  uint64_t stream_ = 0;
};

class NamingInterceptors final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit NamingInterceptors(Callers* callers) : callers_(callers) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    const Naming* naming = NamingOf(info->method() == nullptr ? "" : info->method());
    const bool streams = info->type() == ServerRpcInfo::Type::SERVER_STREAMING ||
                         info->type() == ServerRpcInfo::Type::BIDI_STREAMING;
    if (naming == nullptr && !streams) return nullptr;
    return new NamingInterceptor(callers_, naming, info);  // gRPC owns it
  }

 private:
  Callers* callers_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> NamingBy(Callers* callers) {
  return std::make_unique<NamingInterceptors>(callers);
}

Callers::Callers(const Engine* engine) : engine_(engine), key_(NewSecret().value_or("")) {}

std::pair<std::string, std::string> Callers::MarkOf(const std::string& token) const {
  return {kMark, key_ + " " + token};
}

std::string Callers::TokenOf(const grpc::ServerContextBase& context) const {
  const std::string_view mark = MetadataOf(context, kMark);
  if (!key_.empty() && mark.starts_with(key_ + " ")) return std::string(mark.substr(key_.size() + 1));
  const auto tokens = engine_->View()->tokens;
  const TokenRecord* token = FindToken(*tokens, BearerOf(MetadataOf(context, "authorization")));
  return token == nullptr ? "" : token->name;
}

std::string Callers::OwnerOf(const grpc::ServerContextBase& context) const {
  const std::string name = TokenOf(context);
  if (name.empty()) return "";
  const auto tokens = engine_->View()->tokens;
  const auto token = tokens->find(name);
  return token == tokens->end() ? "" : token->second.owner;
}

uint64_t Callers::Remember(std::string token, grpc::ServerContextBase* stream) {
  const std::lock_guard lock(mutex_);
  streams_[++last_] = {std::move(token), stream};
  return last_;
}

void Callers::Forget(uint64_t number) {
  const std::lock_guard lock(mutex_);
  streams_.erase(number);
}

void Callers::EndStreamsOf(const IsTokenOver& is_over) {
  const std::lock_guard lock(mutex_);
  const auto is_of_token = [&is_over](const auto& stream) { return is_over(stream.second.token); };
  // Its end may come within TryCancel(), and change the map.
  while (true) {
    const auto found = std::find_if(streams_.begin(), streams_.end(), is_of_token);
    if (found == streams_.end()) return;
    auto* context = found->second.context;
    streams_.erase(found);
    context->TryCancel();
  }
}

}  // namespace imgd
