#include "server/rpc/call_interceptor.h"

#include <grpcpp/support/interceptor.h>

#include <chrono>
#include <string>

namespace imgd {
namespace {

using grpc::experimental::Interceptor;
using grpc::experimental::ServerRpcInfo;
using HookPoint = grpc::experimental::InterceptionHookPoints;

/// One call; lives as long as it does.
class CallInterceptor final : public Interceptor {
 public:
  CallInterceptor(CallTimes* times, const ServerRpcInfo& info)
      : times_(times),
        method_(info.method() == nullptr ? "" : info.method()),
        is_unary_(info.type() == ServerRpcInfo::Type::UNARY),
        begun_(std::chrono::steady_clock::now()) {
    if (!is_unary_) times_->NoteStreamBegun(method_);
  }

  ~CallInterceptor() override {
    if (is_unary_) {
      times_->NoteCall(method_, code_, ended_ - begun_);
    } else {
      times_->NoteStreamEnded(method_, code_);
    }
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(HookPoint::PRE_SEND_STATUS)) {
      code_ = methods->GetSendStatus().error_code();
      ended_ = std::chrono::steady_clock::now();
    }
    methods->Proceed();
  }

 private:
  CallTimes* times_;
  std::string method_;
  bool is_unary_;
  Instant begun_;
  Instant ended_ = begun_;
  int code_ = grpc::StatusCode::CANCELLED;  ///< of one that ended before it had a status
};

class CallInterceptors final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallInterceptors(CallTimes* times) : times_(times) {}
  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    return new CallInterceptor(times_, *info);  // gRPC owns it
  }

 private:
  CallTimes* times_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> TimingOf(CallTimes* times) {
  return std::make_unique<CallInterceptors>(times);
}

}  // namespace imgd
