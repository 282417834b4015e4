#include "server/rpc/call_interceptor.h"

#include <grpcpp/support/interceptor.h>

#include <chrono>
#include <string>
#include <utility>

#include "common/clock_skew.h"

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

  ~CallInterceptor() override { End(grpc::StatusCode::CANCELLED); }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(HookPoint::PRE_SEND_INITIAL_METADATA))
      methods->GetSendInitialMetadata()->emplace(kTimeMetadata, std::to_string(SystemClock().Wall().micros));
    // Before it is sent: who has the answer finds the call counted.
    if (methods->QueryInterceptionHookPoint(HookPoint::PRE_SEND_STATUS))
      End(methods->GetSendStatus().error_code());
    methods->Proceed();
  }

 private:
  /// Counts the call, once.
  void End(int code) {
    if (std::exchange(ended_, true)) return;
    if (is_unary_) {
      times_->NoteCall(method_, code, std::chrono::steady_clock::now() - begun_);
    } else {
      times_->NoteStreamEnded(method_, code);
    }
  }

  CallTimes* times_;
  std::string method_;
  bool is_unary_;
  Instant begun_;
  bool ended_ = false;
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
