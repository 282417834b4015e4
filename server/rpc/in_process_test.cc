#include "server/rpc/in_process.h"

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "grpc/health/v1/health.pb.h"

namespace imgd {
namespace {

TEST(InProcessCaller, GoesOnlyWhenItsCallsHave) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  const auto server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const auto* method = grpc::health::v1::HealthCheckRequest::descriptor()
                           ->file()
                           ->FindServiceByName("Health")
                           ->FindMethodByName("Check");
  std::promise<bool> answered;
  bool over = false;
  {
    InProcessCaller caller(*server, nullptr);
    caller.Call(*method, std::make_unique<grpc::health::v1::HealthCheckRequest>(), "",
                [&](const web::ApiCaller::Reply& reply) {
                  answered.set_value(reply.has_value());
                  std::this_thread::sleep_for(std::chrono::milliseconds(50));
                  over = true;
                });
    EXPECT_TRUE(answered.get_future().get());
  }
  EXPECT_TRUE(over);
}

}  // namespace
}  // namespace imgd
