#include "server/rpc/in_process.h"

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <thread>

#include "grpc/health/v1/health.pb.h"

namespace imgd {
namespace {

const google::protobuf::MethodDescriptor& Check() {
  return *grpc::health::v1::HealthCheckRequest::descriptor()
              ->file()
              ->FindServiceByName("Health")
              ->FindMethodByName("Check");
}

struct InProcess : testing::Test {
  InProcess() {
    grpc::EnableDefaultHealthCheckService(true);
    server = grpc::ServerBuilder().BuildAndStart();
    caller = std::make_unique<InProcessCaller>(*server, nullptr);
  }
  void Call(std::function<void(web::ApiCaller::Reply)> done) {
    caller->Call(Check(), std::make_unique<grpc::health::v1::HealthCheckRequest>(), "", std::move(done));
  }
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<InProcessCaller> caller;
};

TEST_F(InProcess, GoesOnlyWhenItsCallsHaveThoughOneThrows) {
  std::promise<bool> answered;
  std::atomic<bool> over = false;
  Call([&](const web::ApiCaller::Reply& reply) {
    answered.set_value(reply.has_value());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    over = true;
    throw std::bad_alloc();
  });
  EXPECT_TRUE(answered.get_future().get());
  caller->Close();
  server->Shutdown();
  caller.reset();
  EXPECT_TRUE(over);
  server.reset();
}

TEST_F(InProcess, ClosedItRefuses) {
  caller->Close();
  server->Shutdown();
  std::optional<web::ApiCaller::Reply> got;
  Call([&](web::ApiCaller::Reply reply) { got = std::move(reply); });
  ASSERT_TRUE(got.has_value() && !got->has_value());
  EXPECT_EQ(got->error().front().message, "the daemon is ending");
}

}  // namespace
}  // namespace imgd
