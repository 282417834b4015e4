#include "agent/testing/fake_daemon.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <mutex>

#include "imgd/v1/agent.grpc.pb.h"

namespace imgd {

using Stream = grpc::ServerReaderWriter<v1::ConnectResponse, v1::ConnectRequest>;

struct FakeDaemon::Impl : v1::AgentService::Service {
  grpc::Status Connect(grpc::ServerContext*, Stream* stream) override {
    v1::ConnectRequest request;
    while (stream->Read(&request)) {
      const std::scoped_lock lock(mutex);
      if (!refusal.empty()) return {grpc::StatusCode::ALREADY_EXISTS, refusal};
      seen.order.push_back(request.message_case());
      if (request.has_hello()) Welcome(request.hello(), stream);
      if (request.has_heartbeat()) seen.heartbeats.push_back(request.heartbeat());
      if (request.has_metrics_page()) seen.pages.push_back(request.metrics_page());
      if (request.has_run_status()) seen.statuses.push_back(request.run_status());
      if (const auto ack = seen.store.Take(request)) stream->Write(*ack);
      changed.notify_all();
    }
    const std::scoped_lock lock(mutex);
    if (current == stream) {
      current = nullptr;
      seen.connected = false;
    }
    changed.notify_all();
    return grpc::Status::OK;
  }

  void Welcome(const v1::Hello& hello, Stream* stream) {
    seen.hellos.push_back(hello);
    for (const auto& status : hello.runs()) seen.statuses.push_back(status);
    v1::ConnectResponse response;
    response.mutable_welcome()->set_heartbeat_ms(50);
    response.mutable_welcome()->set_cluster_id(cluster);
    seen.store.AddPositions(response.mutable_welcome());
    stream->Write(response);
    current = stream;
    seen.connected = true;
  }

  void Listen() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server = builder.BuildAndStart();
  }

  std::unique_ptr<grpc::Server> server;
  int port = 0;
  std::mutex mutex;
  std::condition_variable changed;
  Seen seen;  // guarded by mutex, as what follows
  Stream* current = nullptr;
  std::string refusal;
  std::string cluster = "test";
};

v1::RunStatus FakeDaemon::Seen::Status(uint64_t job, uint64_t generation) const {
  for (auto it = statuses.rbegin(); it != statuses.rend(); ++it) {
    if (it->run().job_id() == job && it->run().generation() == generation) return *it;
  }
  return {};
}

FakeDaemon::FakeDaemon() : impl_(std::make_unique<Impl>()) { impl_->Listen(); }

FakeDaemon::~FakeDaemon() { Shutdown(); }

std::string FakeDaemon::address() const { return "127.0.0.1:" + std::to_string(impl_->port); }

void FakeDaemon::Shutdown() {
  if (impl_->server == nullptr) return;
  impl_->server->Shutdown(std::chrono::system_clock::now());
  impl_->server->Wait();
  impl_->server.reset();
}

void FakeDaemon::Restart() { impl_->Listen(); }

void FakeDaemon::Refuse(const std::string& why) {
  const std::scoped_lock lock(impl_->mutex);
  impl_->refusal = why;
}

void FakeDaemon::SetCluster(const std::string& cluster) {
  const std::scoped_lock lock(impl_->mutex);
  impl_->cluster = cluster;
}

void FakeDaemon::Send(const v1::ConnectResponse& response) {
  const std::scoped_lock lock(impl_->mutex);
  if (impl_->current != nullptr) impl_->current->Write(response);
}

bool FakeDaemon::Until(const std::function<bool(Seen&)>& done) {
  std::unique_lock lock(impl_->mutex);
  return impl_->changed.wait_for(lock, std::chrono::seconds(60), [&] { return done(impl_->seen); });
}

}  // namespace imgd
