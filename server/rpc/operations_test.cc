#include <thread>

#include "imgd/v1/event.grpc.pb.h"
#include "server/rpc/testing/rpc_fixture.h"

namespace imgd {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

struct OperationsRpc : RpcTest {
  grpc::Status Change(v1::ChangeJobRequest request, uint64_t id) {
    request.set_id(id);
    request.set_actor("ada");
    v1::ChangeJobResponse response;
    Context context;
    const auto status = jobs->ChangeJob(&context, request, &response);
    changed = response.job();
    return status;
  }
  static v1::ChangeJobRequest Pause() {
    v1::ChangeJobRequest request;
    request.mutable_pause();
    return request;
  }
  static v1::ChangeJobRequest Resume() {
    v1::ChangeJobRequest request;
    request.mutable_resume();
    return request;
  }
  grpc::Status SetAside(const std::string& node, bool drain, const std::string& reason,
                        v1::Node* out = nullptr) {
    v1::SetAsideNodeRequest request;
    request.set_name(node);
    request.set_drain(drain);
    request.set_reason(reason);
    request.set_actor("ada");
    v1::SetAsideNodeResponse response;
    Context context;
    const auto status = v1::NodeService::NewStub(channel)->SetAsideNode(&context, request, &response);
    if (out != nullptr) *out = response.node();
    return status;
  }
  std::vector<v1::Event> Events(v1::WatchEventsRequest request = {}) {
    request.set_no_follow(true);
    Context context;
    auto stream = v1::EventService::NewStub(channel)->WatchEvents(&context, request);
    std::vector<v1::Event> out;
    v1::WatchEventsResponse response;
    while (stream->Read(&response)) out.push_back(response.event());
    EXPECT_TRUE(stream->Finish().ok());
    return out;
  }
  static std::vector<std::string> Texts(const std::vector<v1::Event>& events) {
    std::vector<std::string> out;
    for (const auto& event : events) out.push_back(event.text());
    return out;
  }
  v1::Job changed;
};

TEST_F(OperationsRpc, AJobIsPausedThroughACheckpointAndResumed) {
  FakeAgent agent(channel, "a", 1);
  const uint64_t id = Submit(kJob);
  const v1::RunId run = BringUp(agent);
  const uint64_t next = Submit(fmt::format("{}after: [{}]\n", kJob, id));
  ASSERT_TRUE(Change(Pause(), id).ok());
  EXPECT_EQ(changed.state(), v1::JOB_STATE_PREEMPTING);
  EXPECT_EQ(Get(next).job().expected_start_us(), 0) << "who gives its devices back has not ended with that";
  const auto stop = agent.NextCommand();
  ASSERT_TRUE(stop && stop->has_stop_run());
  EXPECT_TRUE(stop->stop_run().checkpoint_first());
  agent.Events(run, 0, 2, {CheckpointEvent("/ckpt/g1/step7", 7, 1)});
  agent.Phase(run, v1::RUN_PHASE_GONE, {MakeExit(0, 11)});
  WaitFor(id, v1::JOB_STATE_PAUSED);
  EXPECT_EQ(Get(id).job().reason_text(), "paused by ada; it goes on from the checkpoint of step 7");
  EXPECT_THAT(Get(next).job().reason_text(),
              HasSubstr("; job 1 (rn50) is paused (imgcli resume 1 goes on with it)"));
  const auto twice = Change(Pause(), id);
  EXPECT_EQ(twice.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(twice.error_message(), HasSubstr("job 1 is paused already"));
  ASSERT_TRUE(Change(Resume(), id).ok());
  EXPECT_EQ(changed.state(), v1::JOB_STATE_STARTING);
}

TEST_F(OperationsRpc, OfAPausedJobThatCouldNotStartAnyMoreItIsSaidThatAResumeEndsIt) {
  const uint64_t first = Submit(kJob);
  const uint64_t second = Submit(fmt::format("{}after: [{}]\n", kJob, first));
  const uint64_t third = Submit(fmt::format("{}after: [{}]\n", kJob, second));
  ASSERT_TRUE(Change(Pause(), second).ok());
  EXPECT_THAT(Get(third).job().reason_text(), HasSubstr("; job 2 (rn50) is paused (imgcli resume 2"));
  ASSERT_TRUE(Cancel(first).ok());
  const std::string broken =
      "job 1 (rn50) ended as CANCELLED, and this one was to start only if it completed";
  EXPECT_THAT(Get(second).job().reason_text(), EndsWith("; it fails once it is resumed: " + broken));
  EXPECT_THAT(Get(third).job().reason_text(),
              EndsWith("; job 2 (rn50) is paused, and fails once it is resumed: " + broken));
}

TEST_F(OperationsRpc, WhoHasTheDevicesOfAQuotaIsTold) {
  daemon.reset();
  config.quotas.user.devices = 1;
  StartDaemon();
  FakeAgent agent(channel, "a", 2);
  Submit(fmt::format("{}time_limit: 1h\n", kJob));
  BringUp(agent);
  const uint64_t next = Submit(kJob);
  EXPECT_THAT(Get(next).job().reason_text(),
              AllOf(HasSubstr("user ada may have 1 device at once and has 1; it needs 1;"),
                    HasSubstr("; job 1 (rn50) has devices of user ada and ends in ")));
}

TEST_F(OperationsRpc, OfManyThatHaveTheDevicesOfAQuotaItIsSaidHowManyMoreThereAre) {
  daemon.reset();
  config.quotas.user.devices = 4;
  StartDaemon();
  FakeAgent agent(channel, "a", 5);
  for (int i = 0; i < 4; ++i) {
    Submit(kJob);
    BringUp(agent);
  }
  EXPECT_THAT(Get(Submit(kJob)).job().reason_text(),
              AllOf(HasSubstr("; job 3 (rn50) has devices of user ada"), Not(HasSubstr("; job 4 (rn50)")),
                    HasSubstr("; 1 more has devices of user ada")));
}

TEST_F(OperationsRpc, ForWhomAQuotasRestIsKeptIsTold) {
  daemon.reset();
  config.quotas.user.devices = 2;
  StartDaemon();
  FakeAgent agent(channel, "a", 3);
  Submit(kJob);
  BringUp(agent);
  const uint64_t large = Submit(fmt::format("{}resources: {{ranks_per_node: 2}}\n", kJob));
  const uint64_t small = Submit(kJob);
  EXPECT_THAT(Get(large).job().reason_text(), HasSubstr("; job 1 (rn50) has devices of user ada"));
  EXPECT_THAT(
      Get(small).job().reason_text(),
      AllOf(HasSubstr("it needs 1, and what is left is kept for an earlier job of theirs; position 2"),
            HasSubstr("; job 2 (rn50) waits for the quota of user ada, too, before it")));
}

TEST_F(OperationsRpc, WhatJobsCannotDoIsSaidAndEndedOnesAreNotUnknown) {
  const uint64_t id = Submit(kJob);
  EXPECT_THAT(Change(Resume(), id).error_message(), HasSubstr("job 1 is not paused: it is QUEUED"));
  EXPECT_EQ(Change(Resume(), 99).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(Change({}, id).error_message(), HasSubstr("change: missing"));
  v1::ChangeJobRequest priority;
  priority.set_priority(1001);
  EXPECT_THAT(Change(priority, id).error_message(),
              HasSubstr("priority: found 1001; allowed: -1000 to 1000"));
  priority.set_priority(5);
  ASSERT_TRUE(Change(priority, id).ok());
  EXPECT_EQ(changed.priority(), 5);
  v1::ChangeJobRequest limit;
  limit.set_time_limit_ms(3'600'000);
  ASSERT_TRUE(Change(limit, id).ok());
  limit.set_more_time_ms(-600'000);
  ASSERT_TRUE(Change(limit, id).ok());
  EXPECT_EQ(changed.time_limit_ms(), 3'000'000);
  ASSERT_TRUE(Cancel(id).ok());
  EXPECT_THAT(Change(Pause(), id).error_message(), HasSubstr("it has ended already (CANCELLED)"));
  EXPECT_EQ(Get(id).job().priority(), 5);
}

TEST_F(OperationsRpc, WhatIsAskedOfAJobLaterKeepsThePoliciesToo) {
  daemon.reset();
  auto root = YamlMap::Parse(
      "policies:\n  - {name: caps, text: ask Bob, at_most: {priority: 5, time_limit: 2h}, at_least: "
      "{priority: -5}}\n"
      "  - {name: others, users: [bob], at_most: {priority: 1}}\n",
      "imgd.yaml");
  config.policies = ReadPolicies(*root);
  StartDaemon();
  const uint64_t id = Submit(std::string(kJob) + "time_limit: 1h\n");
  const auto priority = [&](int value) {
    v1::ChangeJobRequest request;
    request.set_priority(value);
    return Change(request, id);
  };
  EXPECT_TRUE(priority(5).ok());
  const auto refused = priority(6);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(),
              HasSubstr("priority is 6, and at most 5 is allowed by policy caps (ask Bob)"));
  EXPECT_THAT(priority(-6).error_message(), HasSubstr("priority is -6, and at least -5 is allowed"));
  const auto time_limit = [&](int64_t to_ms, int64_t more_ms = 0) {
    v1::ChangeJobRequest request;
    if (more_ms != 0) {
      request.set_more_time_ms(more_ms);
    } else {
      request.set_time_limit_ms(to_ms);
    }
    return Change(request, id);
  };
  EXPECT_TRUE(time_limit(0, 3'600'000).ok());
  EXPECT_THAT(time_limit(0, 60'000).error_message(),
              HasSubstr("time_limit is 121m, and at most 2h is allowed by policy caps (ask Bob)"));
  EXPECT_THAT(time_limit(0).error_message(), HasSubstr("time_limit is without a limit, and at most 2h"));
  EXPECT_EQ(Get(id).job().priority(), 5);
  EXPECT_EQ(Get(id).job().time_limit_ms(), 7'200'000);
}

TEST_F(OperationsRpc, ARerunKeepsTheLinkToTheJobThatItCameFrom) {
  Submit(kJob);
  v1::SubmitJobRequest request;
  request.set_job_yaml(kJob);
  request.set_rerun_of(1);
  v1::SubmitJobResponse response;
  Context context;
  ASSERT_TRUE(jobs->SubmitJob(&context, request, &response).ok());
  EXPECT_EQ(response.job().rerun_of(), 1U);
  EXPECT_EQ(Get(2).history(0).state_change().text(), "submitted, from the file of job 1");
  request.set_rerun_of(77);
  Context other;
  EXPECT_EQ(jobs->SubmitJob(&other, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(OperationsRpc, ADrainedNodeStaysSoOverARestartAndItsRunsAreListed) {
  auto agent = std::make_unique<FakeAgent>(channel, "a", 1);
  const uint64_t id = Submit(kJob);
  const v1::RunId run = BringUp(*agent);
  v1::Node node;
  ASSERT_TRUE(SetAside("a", true, "bad fan", &node).ok());
  EXPECT_EQ(node.reason_text(), "is drained by ada: bad fan (1 job still there)");
  EXPECT_FALSE(node.set_aside().empty());
  ASSERT_TRUE(agent->NextCommand()->has_stop_run());
  agent->Phase(run, v1::RUN_PHASE_GONE, {MakeExit(0, 143)});
  WaitFor(id, v1::JOB_STATE_QUEUED);
  agent.reset();
  daemon.reset();
  StartDaemon();
  agent = std::make_unique<FakeAgent>(channel, "a", 1);
  ASSERT_TRUE(agent->connected());
  EXPECT_TRUE(Nodes().nodes(0).set_aside().empty());
  EXPECT_THAT(Get(id).job().reason_text(), HasSubstr("node a is drained by ada: bad fan"));

  v1::GetNodeRequest request;
  request.set_name("a");
  v1::GetNodeResponse response;
  Context context;
  ASSERT_TRUE(v1::NodeService::NewStub(channel)->GetNode(&context, request, &response).ok());
  ASSERT_EQ(response.runs_size(), 1);
  EXPECT_EQ(response.runs(0).job_id(), id);
  EXPECT_THAT(response.runs(0).ended_text(), HasSubstr("node a is drained by ada: bad fan"));
  EXPECT_EQ(SetAside("a", true, "").error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(SetAside("b", true, "").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(SetAside("a", true, "x\ny").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(OperationsRpc, EventsAreKeptFilteredAndGoOnFromANumber) {
  FakeAgent agent(channel, "a", 1);
  Submit(kJob);
  BringUp(agent);
  Submit(kJob);
  ASSERT_TRUE(SetAside("a", false, "look").ok());
  const auto all = Events();
  EXPECT_THAT(Texts(all),
              AllOf(Contains("node a has joined with 1 device"), Contains("submitted"),
                    Contains("placed on a; its ranks are being started"), Contains("the rank trains"),
                    Contains(HasSubstr("needs 1 node")), Contains("node a is cordoned by ada: look")));
  for (size_t i = 1; i < all.size(); ++i) EXPECT_GT(all[i].number(), all[i - 1].number());
  v1::WatchEventsRequest request;
  request.set_after_event(all[2].number());
  EXPECT_EQ(Events(request).size(), all.size() - 3);
  request = {};
  request.set_job_id(1);
  EXPECT_THAT(Texts(Events(request)), Not(Contains(HasSubstr("node a has joined"))));
  request = {};
  request.set_node("a");
  EXPECT_THAT(Texts(Events(request)),
              ElementsAre("node a has joined with 1 device", "placed on a; its ranks are being started",
                          "the rank trains", "node a is cordoned by ada: look"));
  daemon.reset();
  StartDaemon();
  EXPECT_EQ(Events().size(), all.size());
}

TEST_F(OperationsRpc, OnlySoManyEventsAreKeptAndTheHistoryOfJobsStays) {
  for (int i = 0; i < 5; ++i) Submit(kJob);
  ASSERT_EQ(Events().front().number(), 1U);
  const uint64_t last = Events().back().number();
  daemon.reset();
  config.events_kept = 2;
  StartDaemon();
  Submit(kJob);  // answered by the first batch at the earliest, which looks for what is too old
  EXPECT_GE(Events().front().number(), last - 1);
  EXPECT_EQ(Get(1).history(0).state_change().text(), "submitted");
}

TEST_F(OperationsRpc, WhoFollowsEventsWaitsAlsoAfterACommitThatFailed) {
  Submit(kJob);
  {
    const FullDisk full(4096);
    v1::SubmitJobResponse response;
    EXPECT_FALSE(Submit(kJob, response).ok());
  }
  while (!List().warning().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  Context context;
  auto stream = v1::EventService::NewStub(channel)->WatchEvents(&context, v1::WatchEventsRequest());
  v1::WatchEventsResponse response;
  ASSERT_TRUE(stream->Read(&response));
  // Who reads again at once asks for the time thousands of times meanwhile.
  const uint64_t before = clock.looks;
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(clock.looks - before, 300U);
  const uint64_t next = Submit(kJob);
  while (response.event().job_id() != next) ASSERT_TRUE(stream->Read(&response)) << "the gap hides nothing";
  context.TryCancel();
  while (stream->Read(&response)) {
  }
  (void)stream->Finish();
}

TEST_F(OperationsRpc, EventsAreStreamedAsTheyCome) {
  v1::WatchEventsRequest request;
  Context context;
  auto stream = v1::EventService::NewStub(channel)->WatchEvents(&context, request);
  v1::WatchEventsResponse response;
  const uint64_t id = Submit(kJob);
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.event().job_id(), id);
  EXPECT_EQ(response.event().reason(), v1::REASON_CODE_SUBMITTED);
  EXPECT_EQ(response.event().actor(), "user:ada");
  ASSERT_TRUE(Cancel(id).ok());
  do {
    ASSERT_TRUE(stream->Read(&response));
  } while (response.event().to() != v1::JOB_STATE_CANCELLED);
  context.TryCancel();
  while (stream->Read(&response)) {
  }
  (void)stream->Finish();
}

}  // namespace
}  // namespace imgd
