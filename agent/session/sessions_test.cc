#include "agent/session/sessions.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "agent/network.h"
#include "agent/session/node_port.h"
#include "imgd/v1/session.grpc.pb.h"

namespace imgd {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// A port of which nobody takes connections, and that has no room for more: it does not answer.
class SilentPort {
 public:
  SilentPort() : listener_(*ListenOn("127.0.0.1")) {
    ::listen(listener_.fd.get(), 0);
    for (int i = 0; i < 4; ++i) {
      if (auto fd = ConnectToPort(listener_.port, -1, 200ms)) waiting_.push_back(std::move(*fd));
    }
  }
  uint32_t port() const { return listener_.port; }

 private:
  Listener listener_;
  std::vector<UniqueFd> waiting_;
};

/// imgd's side of the sessions that an agent serves: tells each to connect to a port.
class FakeRelay final : public v1::SessionService::Service {
 public:
  explicit FakeRelay(uint32_t port) : port_(port) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &own_port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeRelay() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return fmt::format("127.0.0.1:{}", own_port_); }

  grpc::Status ServeSession(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::ServeSessionResponse, v1::ServeSessionRequest>* stream) override {
    v1::ServeSessionRequest message;
    stream->Read(&message);
    v1::ServeSessionResponse task;
    task.mutable_task()->set_connect_port(port_);
    stream->Write(task);
    {
      const std::lock_guard lock(mutex_);
      ++asked_;
      changed_.notify_all();
    }
    while (stream->Read(&message)) {
      if (!message.frame().has_end()) continue;
      const std::lock_guard lock(mutex_);
      said_ = message.frame().end().error();
      changed_.notify_all();
      break;
    }
    return grpc::Status::OK;
  }

  void AwaitAsked(int number) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 20s, [&] { return asked_ >= number; }));
  }
  std::string AwaitSaid() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 20s, [&] { return !said_.empty(); }));
    return said_;
  }

 private:
  const uint32_t port_;
  int own_port_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  int asked_ = 0;     // guarded by mutex_
  std::string said_;  // guarded by mutex_
  std::unique_ptr<grpc::Server> server_;
};

v1::OpenSession Order(const std::string& id) {
  v1::OpenSession order;
  order.set_id(id);
  return order;
}

TEST(ConnectToPort, APortThatDoesNotAnswerIsGivenUpInTimeAndWhenNobodyWantsItAnyMore) {
  const SilentPort silent;
  const auto late = ConnectToPort(silent.port(), -1, 100ms);
  ASSERT_FALSE(late);
  EXPECT_THAT(late.error().message, HasSubstr("did not answer within 1 s"));
  const UniqueFd cancel(::eventfd(1, EFD_CLOEXEC));
  const Instant before = std::chrono::steady_clock::now();
  const auto cancelled = ConnectToPort(silent.port(), cancel.get());
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - before, 5s);
}

TEST(Sessions, EndAtOnceWhileAConnectionIsNotAnswered) {
  const SilentPort silent;
  FakeRelay relay(silent.port());
  const auto loop = *EventLoop::Create();
  auto sessions = *Sessions::Create(
      loop.get(), {.server = relay.address(), .node = "a", .shim_program = "", .tensorboard = ""}, nullptr);
  sessions->Open(Order("one"));
  relay.AwaitAsked(1);
  std::this_thread::sleep_for(200ms);  // for it to begin to connect
  const Instant before = std::chrono::steady_clock::now();
  sessions.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before, 5s);
}

TEST(Sessions, OneTooManyIsRefusedInWordsThatNameTheLimit) {
  const SilentPort silent;
  FakeRelay relay(silent.port());
  const auto loop = *EventLoop::Create();
  auto sessions = *Sessions::Create(
      loop.get(), {.server = relay.address(), .node = "a", .shim_program = "", .tensorboard = "", .most = 2},
      nullptr);
  for (const char* id : {"one", "two", "three"}) sessions->Open(Order(id));
  EXPECT_THAT(relay.AwaitSaid(), HasSubstr("node a has 2 sessions and forwarded connections at once"));
}

}  // namespace
}  // namespace imgd
