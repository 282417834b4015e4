#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "imgd/v1/job.grpc.pb.h"
#include "imgd/v1/node.grpc.pb.h"
#include "server/daemon.h"
#include "server/rpc/testing/fake_agent.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kJob = "name: rn50\ndata: {train: /data/train}\n";
constexpr const char* kGang = "name: gang\nresources: {nodes: 2}\ndata: {train: /data/train}\n";

/// A whole daemon in this process, on a free port of the loopback.
struct RpcTest : testing::Test {
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder =
        std::filesystem::path(testing::TempDir()) / fmt::format("imgd_rpc_{}_{}", info->name(), ::getpid());
    std::filesystem::remove_all(folder);
    config.listen = "127.0.0.1:0";
    config.state_dir = folder.string();
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
  v1::GetJobResponse Get(uint64_t id) {
    v1::GetJobRequest request;
    request.set_id(id);
    v1::GetJobResponse response;
    Context context;
    const auto status = jobs->GetJob(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
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

  SystemClock clock;
  std::filesystem::path folder;
  ServerConfig config;
  std::unique_ptr<Daemon> daemon;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::JobService::Stub> jobs;
};

std::vector<std::string> States(const std::vector<v1::JobEvent>& events) {
  std::vector<std::string> out;
  for (const auto& event : events) {
    if (!event.has_state_change()) continue;
    const std::string name = v1::JobState_Name(event.state_change().to());
    if (out.empty() || out.back() != name) out.push_back(name);
  }
  return out;
}

TEST_F(RpcTest, AJobGoesFromSubmitToItsEnd) {
  FakeAgent agent(channel, "a", 1);
  ASSERT_TRUE(agent.connected());
  EXPECT_EQ(agent.welcome().heartbeat_ms(), 3000u);
  const uint64_t id = Submit(kJob);

  const auto prepare = agent.NextCommand();
  ASSERT_TRUE(prepare && prepare->has_prepare_run());
  const v1::RunId run = prepare->prepare_run().run();
  agent.Prepared(run);
  const auto start = agent.NextCommand();
  ASSERT_TRUE(start && start->has_start_run());
  EXPECT_EQ(start->start_run().job_yaml(), kJob);
  EXPECT_EQ(start->start_run().master_port(), 29500u);
  EXPECT_EQ(start->start_run().checkpoint_dir(),
            fmt::format("{}/checkpoints/rn50-{}-{}", folder.string(), agent.welcome().cluster_id(), id));

  agent.Phase(run, v1::RUN_PHASE_RUNNING);
  EXPECT_EQ(
      agent.Events(run, 0, 1, {StartedEvent(), StepEvent(10, 2.5), CheckpointEvent("/c/g1/step10", 10, 1)}),
      3u);
  EXPECT_EQ(Get(id).job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(agent.Events(run, 0, 4, {StepEvent(20, 1.5), FinishedEvent()}), 5u);
  agent.Phase(run, v1::RUN_PHASE_GONE, {MakeExit(0, 0)});

  const auto events = Watch(id);
  EXPECT_THAT(States(events), ElementsAre("JOB_STATE_QUEUED", "JOB_STATE_STARTING", "JOB_STATE_RUNNING",
                                          "JOB_STATE_COMPLETED"));
  uint64_t last = 0;
  size_t steps = 0;
  for (const auto& event : events) {
    EXPECT_GT(event.number(), last);
    last = event.number();
    steps += event.has_step() ? 1 : 0;
  }
  EXPECT_EQ(steps, 2u);
  const auto job = Get(id).job();
  EXPECT_EQ(job.last_step().step(), 20u);
  EXPECT_EQ(job.last_checkpoint().path(), "/c/g1/step10");
  EXPECT_EQ(job.last_event_number(), last);
  EXPECT_EQ(job.owner(), "ada");
  EXPECT_EQ(job.job_yaml(), kJob);
  const auto forget = agent.NextCommand();
  ASSERT_TRUE(forget && forget->has_forget_run());
}

TEST_F(RpcTest, EveryErrorOfABadFileIsInTheAnswer) {
  v1::SubmitJobResponse response;
  const auto status = Submit("name: 'a b'\ndata: {train: /x, flipp: true}\n", response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("job.yaml:1:7: name: found 'a b'"));
  v1::ErrorDetails details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  ASSERT_THAT(details.errors(), SizeIs(2));
  EXPECT_EQ(details.errors(1).line(), 2u);
  EXPECT_EQ(details.errors(1).hint(), "did you mean 'flip'?");
}

TEST_F(RpcTest, TheSameKeyReturnsTheSameJob) {
  v1::SubmitJobResponse first;
  v1::SubmitJobResponse second;
  ASSERT_TRUE(Submit(kJob, first, "key-1").ok());
  ASSERT_TRUE(Submit(kJob, second, "key-1").ok());
  EXPECT_EQ(first.job().id(), second.job().id());
  EXPECT_FALSE(first.existed());
  EXPECT_TRUE(second.existed());
  daemon.reset();
  StartDaemon();
  ASSERT_TRUE(Submit(kJob, second, "key-1").ok());
  EXPECT_TRUE(second.existed());
}

TEST_F(RpcTest, AKeyOfAnotherContentIsRefused) {
  v1::SubmitJobResponse response;
  ASSERT_TRUE(Submit(kJob, response, "key-1").ok());
  const auto refused = Submit("name: other\ndata: {train: /data/train}\n", response, "key-1");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_THAT(refused.error_message(), HasSubstr("'key-1' belongs to job 1 (rn50)"));
}

TEST_F(RpcTest, WhatIsTooLargeIsRefusedBeforeItIsStored) {
  const auto refusal = [this](v1::SubmitJobRequest request) {
    v1::SubmitJobResponse response;
    Context context;
    const auto status = jobs->SubmitJob(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return status.error_message();
  };
  v1::SubmitJobRequest good;
  good.set_job_yaml(kJob);
  auto bad = good;
  bad.set_job_yaml(std::string(30 << 20, '#') + "\n" + kJob);
  EXPECT_THAT(refusal(bad), HasSubstr("at most 1048576 (1 MiB) are allowed"));
  bad = good;
  bad.set_idempotency_key(std::string(129, 'k'));
  EXPECT_THAT(refusal(bad), HasSubstr("found 129 bytes; at most 128 bytes of printable ASCII"));
  bad.set_idempotency_key("a\tb");
  EXPECT_THAT(refusal(bad), HasSubstr("printable ASCII"));
  bad = good;
  bad.set_owner(std::string(257, 'o'));
  EXPECT_THAT(refusal(bad), HasSubstr("owner: found 257 bytes; at most 256"));
  bad.set_owner("ada\x1b[31m");
  EXPECT_THAT(refusal(bad), HasSubstr("owner: found the control character 0x1b at byte 4"));
  v1::ListJobsResponse list;
  Context context;
  ASSERT_TRUE(jobs->ListJobs(&context, {}, &list).ok());
  EXPECT_THAT(list.jobs(), IsEmpty());
}

TEST_F(RpcTest, AWatchAfterAnyNumberBeginsAfterIt) {
  const uint64_t id = Submit(kJob);
  EXPECT_THAT(Watch(id, 0, false), SizeIs(testing::Ge(1)));
  EXPECT_THAT(Watch(id, uint64_t{1} << 63, false), IsEmpty());
  EXPECT_THAT(Watch(id, ~uint64_t{0}, false), IsEmpty());
}

TEST_F(RpcTest, ADryRunStoresNothingAndWarns) {
  v1::SubmitJobRequest request;
  request.set_job_yaml(kJob);
  request.set_dry_run(true);
  v1::SubmitJobResponse response;
  Context context;
  ASSERT_TRUE(jobs->SubmitJob(&context, request, &response).ok());
  EXPECT_EQ(response.job().id(), 0u);
  EXPECT_EQ(response.job().name(), "rn50");
  EXPECT_THAT(response.warnings(), ElementsAre(HasSubstr("no connected node could take the job yet")));
  v1::ListJobsResponse list;
  Context list_context;
  ASSERT_TRUE(jobs->ListJobs(&list_context, {}, &list).ok());
  EXPECT_THAT(list.jobs(), IsEmpty());
}

TEST_F(RpcTest, ListsByPages) {
  for (int i = 0; i < 5; ++i) Submit(kJob);
  std::vector<uint64_t> ids;
  v1::ListJobsRequest request;
  request.set_page_size(2);
  do {
    v1::ListJobsResponse response;
    Context context;
    ASSERT_TRUE(jobs->ListJobs(&context, request, &response).ok());
    EXPECT_LE(response.jobs_size(), 2);
    for (const auto& job : response.jobs()) ids.push_back(job.id());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(ids, ElementsAre(5, 4, 3, 2, 1));
  request.set_page_token("nonsense");
  v1::ListJobsResponse response;
  Context context;
  EXPECT_EQ(jobs->ListJobs(&context, request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RpcTest, ACancelledRunEndsWhenItsProcessesAreGone) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t id = Submit(kJob);
  const v1::RunId run = BringUp(agent);
  ASSERT_TRUE(Cancel(id).ok());
  const auto stop = agent.NextCommand();
  ASSERT_TRUE(stop && stop->has_stop_run());
  EXPECT_EQ(stop->stop_run().grace_ms(), 10'000u);
  EXPECT_EQ(Get(id).job().state(), v1::JOB_STATE_RUNNING);
  agent.Phase(run, v1::RUN_PHASE_GONE, {MakeExit(0, 143)});
  EXPECT_EQ(States(Watch(id)).back(), "JOB_STATE_CANCELLED");
  EXPECT_EQ(Cancel(id).error_code(), grpc::StatusCode::OK);
  EXPECT_EQ(Cancel(99).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(RpcTest, ASecondGangWaitsAndSaysWhy) {
  FakeAgent a(channel, "gpu-1", 1);
  FakeAgent b(channel, "gpu-2", 1);
  Submit(kGang);
  const uint64_t second = Submit(kGang);
  const auto job = Get(second).job();
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(job.reason(), v1::REASON_CODE_WAITS_FOR_DEVICES);
  EXPECT_EQ(job.queue_position(), 1u);
  EXPECT_THAT(job.reason_text(), HasSubstr("job 1 (gang) holds gpu-1, gpu-2"));
  v1::ListNodesResponse nodes;
  Context context;
  ASSERT_TRUE(v1::NodeService::NewStub(channel)->ListNodes(&context, {}, &nodes).ok());
  ASSERT_THAT(nodes.nodes(), SizeIs(2));
  EXPECT_EQ(nodes.nodes(0).devices(0).job_id(), 1u);
  EXPECT_EQ(nodes.nodes(0).state(), v1::NODE_STATE_READY);
}

TEST_F(RpcTest, AGangOverNodesThatShareNoFolderIsRefused) {
  FakeAgent a(channel, "a", 1);
  v1::SubmitJobResponse response;
  {
    // The fake agents all say the same file system; this one does not.
    auto stub = v1::AgentService::NewStub(channel);
    Context context;
    auto stream = stub->Connect(&context);
    v1::ConnectRequest hello;
    hello.mutable_hello()->set_node("b");
    hello.mutable_hello()->set_agent_id("other");
    hello.mutable_hello()->set_filesystem_id("another");
    hello.mutable_hello()->add_devices();
    stream->Write(hello);
    v1::ConnectResponse welcome;
    ASSERT_TRUE(stream->Read(&welcome));
    const auto status = Submit(kGang, response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("do not share the checkpoint folder"));
    EXPECT_TRUE(Submit(kJob, response).ok());
    EXPECT_THAT(response.warnings(), ElementsAre(HasSubstr("can resume only on the node")));
    context.TryCancel();
    (void)stream->Finish();
  }
}

TEST_F(RpcTest, ReportsOfAnOlderStartAreRefusedAndAcknowledged) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t id = Submit(kJob);
  const v1::RunId old = BringUp(agent);
  agent.Phase(old, v1::RUN_PHASE_GONE, {MakeExit(0, 0, 9)});
  ASSERT_TRUE(agent.NextCommand()->has_forget_run());
  const v1::RunId run = BringUp(agent);
  EXPECT_EQ(run.generation(), 2u);
  EXPECT_EQ(agent.Events(old, 0, 2, {CheckpointEvent("/c/g1/step99", 99, 1), StepEvent(99, 0)}), 3u);
  const auto job = Get(id).job();
  EXPECT_FALSE(job.has_last_checkpoint());
  EXPECT_FALSE(job.has_last_step());
  EXPECT_EQ(daemon->engine().View()->stale_reports, 1u);
  EXPECT_EQ(job.restarts(), 1u);
}

TEST_F(RpcTest, ReportsOfANodeThatHasNoPartInTheRunAreRefused) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t id = Submit(kJob);
  const v1::RunId run = BringUp(agent);
  EXPECT_EQ(agent.Lines(run, 0, 1, {"mine"}), 1u);
  FakeAgent stranger(channel, "b", 1);
  stranger.Events(run, 0, 2, {StepEvent(99, 1), CheckpointEvent("/c/g1/step99", 99, 1)});
  stranger.Lines(run, 0, 2, {"not mine"});
  EXPECT_EQ(agent.Events(run, 0, 2, {StepEvent(1, 1)}), 2u) << "the stream goes on where the node left it";
  const auto job = Get(id).job();
  EXPECT_EQ(job.last_step().step(), 1u);
  EXPECT_FALSE(job.has_last_checkpoint());
  v1::ReadLogsRequest request;
  request.set_id(id);
  EXPECT_THAT(Logs(request), ElementsAre("0: mine"));
}

TEST_F(RpcTest, RunsOfAnotherClusterOnlyHoldTheirDevices) {
  v1::RunStatus foreign;
  foreign.mutable_run()->set_job_id(1);
  foreign.mutable_run()->set_generation(1);
  foreign.set_cluster_id("elsewhere");
  foreign.set_phase(v1::RUN_PHASE_RUNNING);
  foreign.add_devices(0);
  foreign.add_ranks()->set_rank(0);
  FakeAgent agent(channel, "a", 1, {foreign});
  EXPECT_THAT(agent.welcome().positions(), IsEmpty());
  const uint64_t id = Submit(kJob);
  EXPECT_EQ(Get(id).job().reason(), v1::REASON_CODE_WAITS_FOR_DEVICES);
  EXPECT_THAT(Get(id).job().reason_text(), HasSubstr("a run of another cluster holds a"));
  v1::ListNodesResponse nodes;
  Context context;
  ASSERT_TRUE(v1::NodeService::NewStub(channel)->ListNodes(&context, {}, &nodes).ok());
  EXPECT_THAT(nodes.nodes(0).devices(0).held_text(), HasSubstr("another cluster (elsewhere)"));
  foreign.set_phase(v1::RUN_PHASE_GONE);
  agent.Status(foreign);
  EXPECT_EQ(BringUp(agent).job_id(), id) << "nothing was said of the other run before";
}

TEST_F(RpcTest, EventsAreStoredOnceAndGapsAreAskedForAgain) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t id = Submit(kJob);
  const v1::RunId run = BringUp(agent);
  EXPECT_EQ(agent.Events(run, 0, 2, {StepEvent(1, 1), StepEvent(2, 1)}), 3u);
  EXPECT_EQ(agent.Events(run, 0, 2, {StepEvent(1, 1), StepEvent(2, 1), StepEvent(3, 1)}), 4u);
  EXPECT_EQ(agent.Events(run, 0, 9, {StepEvent(9, 1)}), 4u) << "5 to 8 are missing";
  size_t steps = 0;
  for (const auto& event : Watch(id, 0, false)) steps += event.has_step() ? 1 : 0;
  EXPECT_EQ(steps, 3u);
}

TEST_F(RpcTest, EventsThatTheAgentKnowsToBeLostArePassedOver) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t id = Submit(kJob);
  const v1::RunId run = BringUp(agent);
  v1::TrainerEvent lost;
  lost.mutable_lost()->set_count(3);
  lost.mutable_lost()->set_reason("what the trainer wrote can't be read");
  EXPECT_EQ(agent.Events(run, 0, 4, {lost, FinishedEvent()}), 5u);
  agent.Phase(run, v1::RUN_PHASE_GONE, {MakeExit(0, 0)});
  EXPECT_EQ(States(Watch(id)).back(), "JOB_STATE_COMPLETED");
  size_t told = 0;
  for (const auto& event : Get(id).history()) {
    told +=
        event.state_change().text() == "3 events of rank 0 are lost: what the trainer wrote can't be read";
  }
  EXPECT_EQ(told, 1u);
}

TEST_F(RpcTest, AWatchGoesOnWhereItWasAfterTheDaemonRestarted) {
  auto agent = std::make_unique<FakeAgent>(channel, "a", 1);
  const uint64_t id = Submit(kJob);
  const v1::RunId run = BringUp(*agent);
  agent->Events(run, 0, 2, {StepEvent(1, 1)});
  const auto before = Watch(id, 0, false);
  agent.reset();
  daemon.reset();
  StartDaemon();

  v1::RunStatus status;
  *status.mutable_run() = run;
  status.set_phase(v1::RUN_PHASE_RUNNING);
  agent = std::make_unique<FakeAgent>(channel, "a", 1, std::vector{status});
  ASSERT_TRUE(agent->connected());
  ASSERT_THAT(agent->welcome().positions(), SizeIs(1));
  EXPECT_EQ(agent->welcome().positions(0).event_sequence(), 2u);
  EXPECT_EQ(Get(id).job().state(), v1::JOB_STATE_RUNNING) << "training went on";
  agent->Events(run, 0, 3, {StepEvent(2, 1), FinishedEvent()});
  agent->Phase(run, v1::RUN_PHASE_GONE, {MakeExit(0, 0)});
  const auto after = Watch(id, before.back().number());
  EXPECT_GT(after.front().number(), before.back().number());
  EXPECT_TRUE(after.front().has_step());
  EXPECT_EQ(States(after).back(), "JOB_STATE_COMPLETED");
}

TEST_F(RpcTest, LogsAreReadByRankTailedAndFollowedToTheEnd) {
  FakeAgent agent(channel, "a", 2);
  const uint64_t id = Submit("name: two\nresources: {ranks_per_node: 2}\ndata: {train: /x}\n");
  const auto prepare = agent.NextCommand();
  ASSERT_TRUE(prepare && prepare->has_prepare_run());
  const v1::RunId run = prepare->prepare_run().run();
  EXPECT_EQ(agent.Lines(run, 0, 1, {"one", "two", "three"}), 3u);
  EXPECT_EQ(agent.Lines(run, 1, 1, {"eins"}), 1u);
  EXPECT_EQ(agent.Lines(run, 0, 2, {"two", "three", "four"}), 4u);
  EXPECT_EQ(agent.Lines(run, 0, 9, {"nine"}), 4u);

  v1::ReadLogsRequest request;
  request.set_id(id);
  EXPECT_THAT(Logs(request),
              testing::UnorderedElementsAre("0: one", "0: two", "0: three", "0: four", "1: eins"));
  request.set_rank(0);
  request.set_tail(2);
  EXPECT_THAT(Logs(request), ElementsAre("0: three", "0: four"));

  request.set_follow(true);
  std::vector<std::string> followed;
  std::thread follower([&] { followed = Logs(request); });
  ASSERT_TRUE(Cancel(id).ok());
  ASSERT_TRUE(agent.NextCommand()->has_stop_run());
  agent.Phase(run, v1::RUN_PHASE_GONE);
  EXPECT_EQ(agent.Lines(run, 0, 5, {"five"}), 5u) << "what comes after the end is stored too";
  follower.join();
  ASSERT_FALSE(followed.empty());
  EXPECT_EQ(followed.back(), "0: five");
  request.set_rank(7);
  Context context;
  auto stream = jobs->ReadLogs(&context, request);
  v1::ReadLogsResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_THAT(stream->Finish().error_message(), HasSubstr("job 1 has no rank 7; 0 to 1 are allowed"));
}

TEST_F(RpcTest, ManyWatchersAreWokenAndCancelledOnesGo) {
  const uint64_t id = Submit(kJob);
  std::vector<std::thread> watchers;
  std::atomic<int> ended = 0;
  for (int i = 0; i < 20; ++i) {
    watchers.emplace_back([&, i] {
      v1::WatchJobRequest request;
      request.set_id(id);
      Context context;
      auto stream = jobs->WatchJob(&context, request);
      v1::WatchJobResponse response;
      bool final = false;
      while (stream->Read(&response)) {
        if (i % 2 == 0) context.TryCancel();
        final = response.event().state_change().to() == v1::JOB_STATE_CANCELLED;
      }
      (void)stream->Finish();
      if (final) ++ended;
    });
  }
  ASSERT_TRUE(Cancel(id).ok());
  for (auto& watcher : watchers) watcher.join();
  EXPECT_GE(ended, 10);
}

TEST_F(RpcTest, ASecondAgentOfTheNameIsRefusedWithWords) {
  FakeAgent first(channel, "a", 1);
  ASSERT_TRUE(first.connected());
  FakeAgent second(channel, "a", 1, {}, "somebody else");
  EXPECT_FALSE(second.connected());
  const auto status = second.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_THAT(status.error_message(), HasSubstr("another agent is connected as node a"));
  FakeAgent again(channel, "a", 1);
  EXPECT_TRUE(again.connected()) << "the same agent replaces its old stream";
  EXPECT_EQ(first.End().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(RpcTest, APortInUseIsSaidInASentence) {
  ServerConfig other = config;
  other.state_dir = folder.string() + "-other";
  other.listen = fmt::format("127.0.0.1:{}", daemon->port());
  const auto refused = Daemon::Start(other, &clock, {});
  std::filesystem::remove_all(other.state_dir);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message,
            fmt::format("cannot listen on {}: the port is in use by another program", other.listen));
  EXPECT_EQ(ExitCodeOf(refused.error().code), 5);
}

TEST_F(RpcTest, ASecondDaemonOnTheFolderIsRefused) {
  const auto refused = Daemon::Start(config, &clock, {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("another imgd uses"));
  EXPECT_EQ(ExitCodeOf(refused.error().code), 5);
}

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

TEST_F(RpcTest, OnAFullDiskNothingIsAcknowledgedAndLaterEverythingGoesOn) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t kept = Submit(kJob);
  BringUp(agent);
  {
    const FullDisk full(4096);
    v1::SubmitJobResponse response;
    const auto status = Submit(kJob, response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr((folder / "state.db").native()));
    EXPECT_EQ(Get(kept).job().state(), v1::JOB_STATE_RUNNING) << "reading goes on";
  }
  EXPECT_FALSE(agent.NextCommand().has_value()) << "agents have to report anew";
  const uint64_t next = Submit(kJob);
  EXPECT_GT(next, kept);
  daemon.reset();
  StartDaemon();
  v1::ListJobsResponse list;
  Context context;
  ASSERT_TRUE(jobs->ListJobs(&context, {}, &list).ok());
  ASSERT_THAT(list.jobs(), SizeIs(2));
  EXPECT_EQ(list.jobs(1).id(), kept);
}

TEST(Config, ChecksEveryKey) {
  EXPECT_TRUE(ParseServerConfig("listen: 0.0.0.0:1\nlost_after: 1m\n", "imgd.yaml").has_value());
  const auto errors = ParseServerConfig("lost_aftr: 1m\nheartbeat: fast\n", "imgd.yaml");
  ASSERT_FALSE(errors.has_value());
  ASSERT_THAT(errors.error(), SizeIs(2));
  EXPECT_EQ(errors.error()[0].hint, "did you mean 'lost_after'?");
  ServerConfig config;
  config.lost_after_ms = 5000;
  EXPECT_THAT(CheckServerConfig(config).error().message, HasSubstr("more than three heartbeats"));
}

}  // namespace
}  // namespace imgd
