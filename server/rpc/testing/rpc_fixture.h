#pragma once

#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "grpc/health/v1/health.pb.h"
#include "imgd/v1/job.grpc.pb.h"
#include "imgd/v1/node.grpc.pb.h"
#include "server/daemon.h"
#include "server/rpc/testing/fake_agent.h"

namespace imgd {

inline constexpr const char* kJob = "name: rn50\ndata: {train: /data/train}\n";
inline constexpr const char* kGang = "name: gang\nresources: {nodes: 2}\ndata: {train: /data/train}\n";

/// Files of this process can't grow beyond a size: what a full disk does to writes.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &old_); }

 private:
  rlimit old_{};
};

/// The machine's clocks, with a time of day that a test may put forward.
struct ForwardClock final : Clock {
  Instant Now() const override {
    ++looks;
    return SystemClock().Now();
  }
  WallTime Wall() const override { return {SystemClock().Wall().micros + forward_micros}; }
  std::atomic<int64_t> forward_micros = 0;
  mutable std::atomic<uint64_t> looks = 0;  ///< how often anybody asked what time it is now
};

/// A whole daemon in this process, on a free port of the loopback.
struct RpcTest : testing::Test {
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder =
        std::filesystem::path(testing::TempDir()) / fmt::format("imgd_rpc_{}_{}", info->name(), ::getpid());
    std::filesystem::remove_all(folder);
    config.listen = "127.0.0.1:0";
    config.web.listen = "";
    config.state_dir = folder.string();
    // A FakeAgent sends none by itself; on a machine that stands still for a while its node must not be lost.
    config.heartbeat_ms = 30'000;
    config.lost_after_ms = 200'000;
    StartDaemon();
  }
  void TearDown() override {
    daemon.reset();
    std::filesystem::remove_all(folder);
  }
  void StartDaemon() {
    auto started = Daemon::Start(config, &clock, {});
    ASSERT_TRUE(started.has_value()) << started.error().message;
    daemon = std::move(*started);
    channel = grpc::CreateCustomChannel(fmt::format("127.0.0.1:{}", daemon->port()),
                                        grpc::InsecureChannelCredentials(), Unshared());
    jobs = v1::JobService::NewStub(channel);
  }
  /// Each channel a connection of its own, so that none is left over from another test.
  static grpc::ChannelArguments Unshared() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return arguments;
  }

  /// Fills the request's deadline, so that nothing hangs.
  struct Context : grpc::ClientContext {
    Context() { set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60)); }
  };

  grpc::Status Submit(const std::string& yaml, v1::SubmitJobResponse& response, const std::string& key = "") {
    v1::SubmitJobRequest request;
    request.set_job_yaml(yaml);
    request.set_file_name("job.yaml");
    request.set_owner("ada");
    request.set_idempotency_key(key);
    Context context;
    return jobs->SubmitJob(&context, request, &response);
  }
  uint64_t Submit(const std::string& yaml) {
    v1::SubmitJobResponse response;
    const auto status = Submit(yaml, response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job().id();
  }
  /// Answered as it would be taken; nothing is stored.
  v1::SubmitJobResponse DryRun(const std::string& yaml) {
    v1::SubmitJobRequest request;
    request.set_job_yaml(yaml);
    request.set_dry_run(true);
    v1::SubmitJobResponse response;
    Context context;
    const auto status = jobs->SubmitJob(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  v1::GetJobResponse Get(uint64_t id) {
    v1::GetJobRequest request;
    request.set_id(id);
    v1::GetJobResponse response;
    Context context;
    const auto status = jobs->GetJob(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  v1::ListJobsResponse List() {
    v1::ListJobsResponse response;
    Context context;
    EXPECT_TRUE(jobs->ListJobs(&context, {}, &response).ok());
    return response;
  }
  v1::ListNodesResponse Nodes() {
    v1::ListNodesResponse response;
    Context context;
    EXPECT_TRUE(v1::NodeService::NewStub(channel)->ListNodes(&context, {}, &response).ok());
    return response;
  }
  /// What the health service says of the whole server.
  std::string Health() {
    const grpc::internal::RpcMethod method("/grpc.health.v1.Health/Check",
                                           grpc::internal::RpcMethod::NORMAL_RPC);
    grpc::health::v1::HealthCheckResponse response;
    Context context;
    const auto status =
        grpc::internal::BlockingUnaryCall<google::protobuf::MessageLite, google::protobuf::MessageLite>(
            channel.get(), method, &context, grpc::health::v1::HealthCheckRequest(), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return grpc::health::v1::HealthCheckResponse::ServingStatus_Name(response.status());
  }
  grpc::Status Cancel(uint64_t id) {
    v1::CancelJobRequest request;
    request.set_id(id);
    request.set_actor("ada");
    v1::CancelJobResponse response;
    Context context;
    return jobs->CancelJob(&context, request, &response);
  }
  /// All events after a number: until the job has ended, or only those stored.
  std::vector<v1::JobEvent> Watch(uint64_t id, uint64_t after = 0, bool follow = true) {
    v1::WatchJobRequest request;
    request.set_id(id);
    request.set_after_event(after);
    request.set_no_follow(!follow);
    Context context;
    auto stream = jobs->WatchJob(&context, request);
    std::vector<v1::JobEvent> events;
    v1::WatchJobResponse response;
    while (stream->Read(&response)) events.push_back(response.event());
    const auto status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return events;
  }
  /// Follows the job until it is in the state.
  void WaitFor(uint64_t id, v1::JobState state) {
    v1::WatchJobRequest request;
    request.set_id(id);
    Context context;
    auto stream = jobs->WatchJob(&context, request);
    v1::WatchJobResponse response;
    while (stream->Read(&response)) {
      if (response.event().state_change().to() == state) {
        context.TryCancel();
        while (stream->Read(&response)) {
        }
        (void)stream->Finish();
        return;
      }
    }
    FAIL() << "job " << id << " never was " << v1::JobState_Name(state) << "; "
           << Get(id).job().ShortDebugString();
  }
  std::vector<std::string> Logs(const v1::ReadLogsRequest& request) {
    Context context;
    auto stream = jobs->ReadLogs(&context, request);
    std::vector<std::string> out;
    v1::ReadLogsResponse response;
    while (stream->Read(&response)) {
      for (const auto& line : response.lines())
        out.push_back(fmt::format("{}: {}", line.rank(), line.text()));
    }
    const auto status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return out;
  }
  /// Brings a job of one rank up on the agent.
  v1::RunId BringUp(FakeAgent& agent) {
    const auto prepare = agent.NextCommand();
    EXPECT_TRUE(prepare && prepare->has_prepare_run())
        << (prepare ? prepare->ShortDebugString() : "stream ended");
    v1::RunId run = prepare->prepare_run().run();
    agent.Prepared(run);
    const auto start = agent.NextCommand();
    EXPECT_TRUE(start && start->has_start_run());
    agent.Phase(run, v1::RUN_PHASE_RUNNING);
    EXPECT_EQ(agent.Events(run, 0, 1, {StartedEvent()}), 1u);
    return run;
  }

  ForwardClock clock;
  std::filesystem::path folder;
  ServerConfig config;
  std::unique_ptr<Daemon> daemon;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::JobService::Stub> jobs;
};

/// The states that the events tell of, without repetitions.
inline std::vector<std::string> States(const std::vector<v1::JobEvent>& events) {
  std::vector<std::string> out;
  for (const auto& event : events) {
    if (!event.has_state_change()) continue;
    const std::string name = v1::JobState_Name(event.state_change().to());
    if (out.empty() || out.back() != name) out.push_back(name);
  }
  return out;
}

}  // namespace imgd
