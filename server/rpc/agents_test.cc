#include <algorithm>
#include <optional>
#include <thread>

#include "server/rpc/testing/rpc_fixture.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(RpcTest, AJobGoesFromSubmitToItsEnd) {
  FakeAgent agent(channel, "a", 1);
  ASSERT_TRUE(agent.connected());
  EXPECT_EQ(agent.welcome().heartbeat_ms(), config.heartbeat_ms);
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
  EXPECT_EQ(job.last_checkpoint().write_seconds(), 2.5);
  EXPECT_EQ(job.last_event_number(), last);
  EXPECT_EQ(job.owner(), "ada");
  EXPECT_EQ(job.job_yaml(), kJob);
  const auto forget = agent.NextCommand();
  ASSERT_TRUE(forget && forget->has_forget_run());
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

/// Of two devices, of which the run has one.
std::vector<v1::DeviceReading> ReadingsOf(const v1::StartRun& start, double busy, const char* error = "") {
  std::vector<v1::DeviceReading> readings(2);
  for (auto& reading : readings) reading.set_busy_ratio(0.99);
  readings.at(start.devices(0)).set_busy_ratio(busy);
  readings.at(start.devices(0)).set_error(error);
  return readings;
}

TEST_F(RpcTest, AReportHasHowBusyTheGangsOwnDevicesWere) {
  FakeAgent a(channel, "a", 2);
  std::optional<FakeAgent> b(std::in_place, channel, "b", 2);
  Submit(kGang);  // has the first device of each
  const uint64_t id = Submit(kGang);
  ASSERT_TRUE(a.NextCommand());
  const auto prepare = a.NextCommand();
  ASSERT_TRUE(prepare && prepare->has_prepare_run());
  ASSERT_EQ(prepare->prepare_run().run().job_id(), id);
  const v1::RunId run = prepare->prepare_run().run();
  a.Prepared(run);
  const auto on_a = a.NextCommand();
  const auto on_b = b->NextCommand();
  ASSERT_TRUE(on_a && on_a->has_start_run() && on_b && on_b->has_start_run());
  ASSERT_THAT(on_a->start_run().devices(), ElementsAre(1));
  // What an agent is acknowledged came after its heartbeat.
  const auto says = [&run](FakeAgent& agent, uint32_t rank, uint64_t sequence, const v1::StartRun& start,
                           double busy, const char* error = "") {
    agent.Heartbeat(ReadingsOf(start, busy, error));
    EXPECT_EQ(agent.Events(run, rank, sequence, {rank == 0 ? StepEvent(sequence, 1) : StartedEvent()}),
              sequence);
  };
  a.Phase(run, v1::RUN_PHASE_RUNNING);
  b->Phase(run, v1::RUN_PHASE_RUNNING);
  says(*b, 1, 1, on_b->start_run(), 0.75);
  says(a, 0, 1, on_a->start_run(), 0.25, "temperature can't be read: Not Supported");
  says(*b, 1, 2, on_b->start_run(), 0, "the driver does not answer");
  says(a, 0, 2, on_a->start_run(), 0);
  says(a, 0, 3, on_a->start_run(), 0, "nor does this one");
  says(*b, 1, 3, on_b->start_run(), 0.75);
  b.reset();
  const auto away = [this] {
    const auto nodes = Nodes();
    return std::any_of(nodes.nodes().begin(), nodes.nodes().end(),
                       [](const auto& node) { return node.disconnected(); });
  };
  while (!away()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  says(a, 0, 4, on_a->start_run(), 0.25);

  v1::GetMetricsRequest request;
  request.set_id(id);
  for (const char* of : {"least", "mean", "most"}) request.add_names(fmt::format("gpu_busy_{}_ratio", of));
  v1::GetMetricsResponse response;
  Context context;
  ASSERT_TRUE(jobs->GetMetrics(&context, request, &response).ok());
  std::vector<std::vector<double>> seen(3);
  for (size_t i = 0; i < seen.size(); ++i) {
    for (const auto& point : response.series(static_cast<int>(i)).points()) seen[i].push_back(point.last());
  }
  EXPECT_THAT(seen[0], ElementsAre(0.25, 0, testing::IsNan(), 0.25));
  EXPECT_THAT(seen[1], ElementsAre(0.5, 0, testing::IsNan(), 0.25)) << "of those that could be read";
  EXPECT_THAT(seen[2], ElementsAre(0.75, 0, testing::IsNan(), 0.25))
      << "what an agent that is away said is not of now";
}

TEST_F(RpcTest, HowBusyADeviceWasIsFoundByItsIndexWhereOthersAreMissing) {
  constexpr uint32_t kFirst = 1;  // device 0 can't be opened
  FakeAgent agent(channel, "a", 2, {}, "", "fs", kFirst);
  const uint64_t id = Submit(kJob);
  const v1::RunId run = BringUp(agent);
  const auto placed = Get(id).job();
  ASSERT_THAT(placed.placements(), SizeIs(1));
  ASSERT_THAT(placed.placements(0).devices(), ElementsAre(kFirst));
  std::vector<v1::DeviceReading> readings(2);
  readings[0].set_busy_ratio(0.25);
  readings[1].set_busy_ratio(0.75);
  agent.Heartbeat(readings);
  EXPECT_EQ(agent.Events(run, 0, 2, {StepEvent(1, 1)}), 2u);
  EXPECT_EQ(Get(id).job().last_step().devices().busy_mean_ratio(), 0.25);
}

TEST_F(RpcTest, ANodeIsListedWithHowBusyItWasOfLate) {
  FakeAgent agent(channel, "a", 2);
  std::vector<v1::DeviceReading> readings(2);
  readings[0].set_busy_ratio(0.5);
  readings[1].set_busy_ratio(1);
  v1::ListNodesResponse nodes;
  // Readings are shown at a tick of the daemon's; agents say them anew.
  do {
    agent.Heartbeat(readings);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Context context;
    ASSERT_TRUE(v1::NodeService::NewStub(channel)->ListNodes(&context, {}, &nodes).ok());
  } while (nodes.nodes(0).recent_busy_ratios().empty());
  EXPECT_THAT(nodes.nodes(0).recent_busy_ratios(), testing::Contains(0.75F));
  v1::GetNodeRequest request;
  request.set_name("a");
  v1::GetNodeResponse node;
  Context context;
  ASSERT_TRUE(v1::NodeService::NewStub(channel)->GetNode(&context, request, &node).ok());
  EXPECT_THAT(node.node().recent_busy_ratios(), testing::Contains(0.75F));
}

TEST_F(RpcTest, ANodeIsHeardByWhateverItSays) {
  daemon.reset();
  config.heartbeat_ms = 100;
  StartDaemon();
  FakeAgent agent(channel, "a", 1);
  const auto is = [this](v1::NodeState state) { return Nodes().nodes(0).state() == state; };
  while (!is(v1::NODE_STATE_UNREACHABLE)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  bool heard = false;
  for (uint64_t line = 1; line <= 500 && !heard; ++line) {
    ASSERT_EQ(agent.Lines(v1::RunId(), 0, line, {"of a run of long ago"}), line);
    heard = is(v1::NODE_STATE_READY);
  }
  EXPECT_TRUE(heard);
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
  const auto now = Get(id);
  for (const auto& event : now.history()) {
    told +=
        event.state_change().text() == "3 events of rank 0 are lost: what the trainer wrote can't be read";
  }
  EXPECT_EQ(told, 1u);
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

}  // namespace
}  // namespace imgd
