#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/testing/fake_daemon.h"
#include "cli/testing/run_cli.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

class Operating : public testing::Test {
 protected:
  CliResult RunOn(std::vector<std::string> arguments) {
    return RunCli(CallTo(daemon_.address(), std::move(arguments)));
  }
  void PutJob(uint64_t id, v1::JobState state, const std::string& reason = "") {
    auto job = MakeJob(id, "rn50", state);
    job.set_reason_text(reason);
    job.set_job_yaml("name: rn50\ndata: {train: /data}\noptimizer: {lr: 0.4}\n");
    daemon_.PutJob(job);
  }
  void PutNode(const std::string& name, uint64_t holder = 0) {
    v1::Node node;
    node.set_name(name);
    node.set_state(v1::NODE_STATE_READY);
    auto& device = *node.add_devices();
    device.set_model("cpu");
    device.set_job_id(holder);
    daemon_.PutNode(node);
  }
  static v1::Event NodeEvent(const std::string& node, v1::ReasonCode reason, const std::string& text) {
    v1::Event event;
    event.set_node(node);
    event.set_reason(reason);
    event.set_text(text);
    event.set_actor("scheduler");
    event.set_time_us(1'700'000'000'000'000);
    return event;
  }

  FakeDaemon daemon_;
};

TEST_F(Operating, PauseAndResumeSayWhatTheJobIs) {
  PutJob(3, v1::JOB_STATE_PREEMPTING, "paused by lena; a checkpoint is written first");
  auto done = RunOn({"pause", "3"});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(done.out, "job 3 (rn50) is PREEMPTING: paused by lena; a checkpoint is written first\n");
  RunOn({"resume", "rn50"});
  RunOn({"move", "3"});
  const auto changes = daemon_.changes();
  ASSERT_THAT(changes, SizeIs(3));
  EXPECT_TRUE(changes[0].has_pause());
  EXPECT_EQ(changes[0].actor(), "lena");
  EXPECT_TRUE(changes[1].has_resume());
  EXPECT_EQ(changes[1].id(), 3U);
  EXPECT_TRUE(changes[2].has_move());
}

TEST_F(Operating, PauseWaitsUntilTheJobHoldsNoDevices) {
  PutJob(3, v1::JOB_STATE_PREEMPTING, "paused by lena; a checkpoint is written first");
  CliProcess process(CallTo(daemon_.address(), {"pause", "3", "--wait"}));
  process.out.WaitFor("PREEMPTING");
  PutJob(3, v1::JOB_STATE_PAUSED, "paused by lena; it goes on from the checkpoint of step 70");
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.out.text(), HasSubstr("job 3 (rn50) is PAUSED: paused by lena; it goes on from"));
}

TEST_F(Operating, AllJobsArePausedBeforeOneIsWaitedFor) {
  PutJob(3, v1::JOB_STATE_PREEMPTING, "paused by lena");
  PutJob(4, v1::JOB_STATE_PREEMPTING, "paused by lena");
  CliProcess process(CallTo(daemon_.address(), {"pause", "3", "4", "--wait"}));
  process.out.WaitFor("job 4 (rn50) is PREEMPTING");
  PutJob(3, v1::JOB_STATE_PAUSED, "paused by lena");
  PutJob(4, v1::JOB_STATE_PAUSED, "paused by lena");
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.out.text(), HasSubstr("job 4 (rn50) is PAUSED"));
}

TEST_F(Operating, AWaitForAPauseIsTakenUpAgain) {
  daemon_.on_change = [](const v1::ChangeJobRequest& request) -> Reply<v1::ChangeJobResponse> {
    return tl::unexpected(
        Errors{Error{.code = ErrorCode::kFailedPrecondition,
                     .message = fmt::format("job {} cannot be paused: it ends already", request.id())}});
  };
  auto job = MakeJob(3, "rn50", v1::JOB_STATE_PREEMPTING);
  job.set_reason(v1::REASON_CODE_PAUSED_BY_USER);
  daemon_.PutJob(job);
  EXPECT_EQ(RunOn({"pause", "3"}).exit_code, 5);
  CliProcess process(CallTo(daemon_.address(), {"pause", "3", "--wait"}));
  process.out.WaitFor("job 3 (rn50) is PREEMPTING");
  job.set_state(v1::JOB_STATE_PAUSED);
  daemon_.PutJob(job);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_EQ(RunOn({"pause", "3", "--wait"}).exit_code, 0) << "it was paused while nobody waited";
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_reason(v1::REASON_CODE_CANCELLED_BY_USER);
  daemon_.PutJob(job);
  const auto ends = RunOn({"pause", "3", "--wait"});
  EXPECT_EQ(ends.exit_code, 5);
  EXPECT_THAT(ends.err, HasSubstr("it ends already"));
}

TEST_F(Operating, WithAWaitADocumentIsOfWhatItCameTo) {
  PutJob(3, v1::JOB_STATE_PAUSED, "paused by lena");
  daemon_.on_change = [](const v1::ChangeJobRequest& request) -> Reply<v1::ChangeJobResponse> {
    v1::ChangeJobResponse response;
    *response.mutable_job() = MakeJob(request.id(), "rn50", v1::JOB_STATE_PREEMPTING);
    return response;
  };
  const auto job = RunOn({"pause", "3", "--wait", "-o", "json"});
  EXPECT_EQ(job.exit_code, 0) << job.err;
  EXPECT_EQ(nlohmann::json::parse(job.out)["state"], "JOB_STATE_PAUSED");
  v1::Node drained;
  drained.set_name("gpu-3");
  drained.mutable_set_aside()->set_drain(true);
  drained.mutable_set_aside()->set_empty(true);
  daemon_.PutNode(drained);
  const auto node = RunOn({"node", "drain", "gpu-3", "--wait", "-o", "json"});
  EXPECT_EQ(node.exit_code, 0) << node.err;
  EXPECT_EQ(nlohmann::json::parse(node.out)["set_aside"]["empty"], true);
}

TEST_F(Operating, AJobThatEndsInsteadOfBeingPausedFailsTheWait) {
  PutJob(3, v1::JOB_STATE_COMPLETED, "trained to the last step");
  const auto done = RunOn({"pause", "3", "--wait"});
  EXPECT_EQ(done.exit_code, 5);
  EXPECT_THAT(done.err, HasSubstr("is COMPLETED"));
  PutJob(4, v1::JOB_STATE_FAILED, "no images");
  EXPECT_EQ(RunOn({"pause", "4", "--wait"}).exit_code, 6);
}

TEST_F(Operating, ARefusalIsSaidWithItsHintAndTheOthersAreStillAsked) {
  daemon_.on_change = [this](const v1::ChangeJobRequest& request) -> Reply<v1::ChangeJobResponse> {
    if (request.id() == 4) {
      return tl::unexpected(Errors{Error{.code = ErrorCode::kFailedPrecondition,
                                         .message = "job 4 is paused already",
                                         .hint = "imgcli resume 4 goes on with it"}});
    }
    v1::ChangeJobResponse response;
    *response.mutable_job() = daemon_.GetJob(request.id());
    return response;
  };
  PutJob(5, v1::JOB_STATE_PAUSED, "paused by lena while it waited");
  const auto done = RunOn({"pause", "4", "5"});
  EXPECT_EQ(done.exit_code, 5);
  EXPECT_THAT(done.err, AllOf(HasSubstr("job 4 is paused already"), HasSubstr("imgcli resume 4")));
  EXPECT_THAT(done.out, HasSubstr("job 5 (rn50) is PAUSED"));
}

TEST_F(Operating, ExplainSaysWhatAJobWaitsForAndWhenItWillProbablyStart) {
  auto job = MakeJob(3, "rn50", v1::JOB_STATE_QUEUED);
  job.set_reason(v1::REASON_CODE_WAITS_FOR_DEVICES);
  job.set_reason_text("needs 2 nodes with 8 free devices each; 1 is free");
  job.set_expected_start_us(NowMicros() + int64_t{2400} * 1'000'000);
  job.set_queue_position(2);
  daemon_.PutJob(job);
  EXPECT_THAT(RunOn({"explain", "rn50"}).out,
              ContainsRegex("^job 3 \\(rn50\\) is QUEUED: needs 2 nodes with 8 free devices each; 1 is free\n"
                            "It will probably start in about 40 min, at [^\n]+\\.\n$"));
  const auto document = nlohmann::json::parse(RunOn({"explain", "3", "-o", "json"}).out);
  EXPECT_EQ(document["reason"], "REASON_CODE_WAITS_FOR_DEVICES");
  EXPECT_EQ(document["queue_position"], 2);
  EXPECT_EQ(document["expected_start_us"], fmt::format("{}", job.expected_start_us()));
  job.set_expected_start_us(NowMicros());
  daemon_.PutJob(job);
  EXPECT_THAT(RunOn({"explain", "3"}).out, HasSubstr("\nIt will probably start now.\n"));
}

TEST_F(Operating, ExplainSaysThatNobodyKnowsTheStartAndOfOthersNothingOfIt) {
  PutJob(3, v1::JOB_STATE_QUEUED, "needs 1 node with 1 free device each; 0 are free; job 2 (rn18) holds a");
  EXPECT_EQ(RunOn({"explain", "3"}).out,
            "job 3 (rn50) is QUEUED: needs 1 node with 1 free device each; 0 are free; job 2 (rn18) holds a\n"
            "When it will start is not known.\n");
  PutJob(3, v1::JOB_STATE_RUNNING, "placed on a");
  EXPECT_EQ(RunOn({"explain", "3"}).out, "job 3 (rn50) is RUNNING: placed on a\n");
}

TEST_F(Operating, ExplainGivesNoWayOnThatWouldEndTheJob) {
  auto job = MakeJob(3, "rn50", v1::JOB_STATE_PAUSED);
  job.set_reason_text("paused by ada");
  auto& after = *job.add_after();
  after.set_when(v1::AFTER_END_OK);
  after.set_ended(v1::JOB_STATE_COMPLETED);
  daemon_.PutJob(job);
  EXPECT_THAT(RunOn({"explain", "3"}).out, HasSubstr("resume 3 lets it go on.\n"));
  after.set_ended(v1::JOB_STATE_CANCELLED);
  daemon_.PutJob(job);
  EXPECT_EQ(RunOn({"explain", "3"}).out, "job 3 (rn50) is PAUSED: paused by ada\n");
  after.set_when(v1::AFTER_END_ANY);
  daemon_.PutJob(job);
  EXPECT_THAT(RunOn({"explain", "3"}).out, HasSubstr("lets it go on"));
}

TEST_F(Operating, PriorityTakesWholeNumbersBelowZeroToo) {
  PutJob(3, v1::JOB_STATE_QUEUED);
  EXPECT_EQ(RunOn({"priority", "3", "50"}).exit_code, 0);
  EXPECT_EQ(RunOn({"priority", "3", "--", "-5"}).exit_code, 0);
  const auto wrong = RunOn({"priority", "3", "high"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("found 'high'; a whole number from -1000 to 1000"));
  ASSERT_THAT(daemon_.changes(), SizeIs(2));
  EXPECT_EQ(daemon_.changes()[0].priority(), 50);
  EXPECT_EQ(daemon_.changes()[1].priority(), -5);
}

TEST_F(Operating, ExtendMakesLongerShorterOrSets) {
  auto job = MakeJob(3, "rn50", v1::JOB_STATE_RUNNING);
  job.set_time_limit_ms(7'200'000);
  daemon_.PutJob(job);
  EXPECT_THAT(RunOn({"extend", "3", "90m"}).out, HasSubstr("has a time_limit of 2h00m, over all its starts"));
  RunOn({"extend", "3", "--less", "30m"});
  RunOn({"extend", "3", "--to", "36h"});
  RunOn({"extend", "3", "--to", "none"});
  const auto changes = daemon_.changes();
  ASSERT_THAT(changes, SizeIs(4));
  EXPECT_EQ(changes[0].more_time_ms(), 5'400'000);
  EXPECT_EQ(changes[1].more_time_ms(), -1'800'000);
  EXPECT_EQ(changes[2].time_limit_ms(), 129'600'000);
  EXPECT_EQ(changes[3].change_case(), v1::ChangeJobRequest::kTimeLimitMs);
  EXPECT_EQ(changes[3].time_limit_ms(), 0);
  const auto none = RunOn({"extend", "3"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("one of TIME (so much longer), --less and --to is needed"));
}

TEST_F(Operating, RerunSubmitsTheStoredFileWithChangesAndSaysWhichTheyAre) {
  PutJob(3, v1::JOB_STATE_FAILED);
  daemon_.on_submit = [](const v1::SubmitJobRequest& request) -> Reply<v1::SubmitJobResponse> {
    v1::SubmitJobResponse response;
    *response.mutable_job() = MakeJob(9, "rn50", v1::JOB_STATE_QUEUED);
    response.mutable_job()->set_job_yaml(request.job_yaml());
    return response;
  };
  const auto done = RunOn({"rerun", "3", "--set", "optimizer.lr=0.2", "--set", "seed=2"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out,
            "job 9 (rn50) submitted, made from job 3 (rn50):\n"
            "  optimizer.lr: 0.4 -> 0.2\n  seed: (not set) -> 2\n");
  ASSERT_THAT(daemon_.submits(), SizeIs(1));
  EXPECT_EQ(daemon_.submits()[0].rerun_of(), 3U);
  EXPECT_FALSE(daemon_.submits()[0].idempotency_key().empty());
  EXPECT_THAT(RunOn({"rerun", "3"}).out, HasSubstr("nothing is different"));
  EXPECT_THAT(RunOn({"rerun", "3", "--set", "after=null"}).out, HasSubstr("nothing is different"))
      << "it comes after none before, too";
  const auto wrong = RunOn({"rerun", "3", "--set", "optimizer.lrr=1"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean 'lr'?"));
  daemon_.on_submit = [](const v1::SubmitJobRequest& request) -> Reply<v1::SubmitJobResponse> {
    return tl::unexpected(Errors{Error{.code = ErrorCode::kInvalidArgument,
                                       .message = "time_limit: is 9m, and at most 5m is allowed",
                                       .file = request.file_name(),
                                       .line = 9,
                                       .column = 13}});
  };
  EXPECT_EQ(RunOn({"rerun", "3", "--set", "time_limit=9m"}).err,
            "--set time_limit=9m: time_limit: is 9m, and at most 5m is allowed\n");
}

TEST_F(Operating, ARerunIsFollowedOrADocument) {
  PutJob(3, v1::JOB_STATE_FAILED);
  const auto both = RunOn({"rerun", "3", "--watch", "-o", "json"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("--watch and --output json or yaml exclude each other"));
  EXPECT_THAT(daemon_.submits(), SizeIs(0));
}

TEST_F(Operating, AJobThatWasStartedByHandIsNotRerun) {
  auto job = MakeJob(3, "mine", v1::JOB_STATE_COMPLETED);
  job.mutable_external()->add_hosts("laptop");
  daemon_.PutJob(job);
  const auto done = RunOn({"rerun", "3"});
  EXPECT_EQ(done.exit_code, 5);
  EXPECT_THAT(done.err, HasSubstr("was started by hand on laptop"));
}

TEST_F(Operating, AMachineThatIsTakenBackHasNothingFree) {
  const struct {
    v1::NodeState state;
    const char* word;
  } cases[] = {{v1::NODE_STATE_READY, "leaving"},
               {v1::NODE_STATE_UNREACHABLE, "taken back"},
               {v1::NODE_STATE_LOST, "taken back"}};
  for (const auto& c : cases) {
    v1::Node node;
    node.set_name("gpu-3");
    node.set_state(c.state);
    node.add_devices()->set_model("cpu");
    node.mutable_notice()->set_action("terminate");
    daemon_.PutNode(node);
    EXPECT_THAT(RunOn({"nodes"}).out, ContainsRegex(fmt::format("gpu-3 +{} +1 +0 ", c.word)));
  }
}

TEST_F(Operating, ADrainSaysWhatIsStillThereAndWhenTheNodeIsEmpty) {
  PutNode("gpu-3", 12);
  const auto done = RunOn({"node", "drain", "gpu-3", "--reason", "bad fan"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("gpu-3 is being drained: 1 job (12) still there"));
  ASSERT_THAT(daemon_.set_asides(), SizeIs(1));
  EXPECT_TRUE(daemon_.set_asides()[0].drain());
  EXPECT_EQ(daemon_.set_asides()[0].reason(), "bad fan");
  EXPECT_EQ(daemon_.set_asides()[0].actor(), "lena");
  EXPECT_THAT(RunOn({"nodes"}).out, ContainsRegex("gpu-3 +draining"));
  EXPECT_EQ(RunOn({"node", "drain", "gpu-3"}).exit_code, 5) << "it is already; but it can be waited for";

  CliProcess process(CallTo(daemon_.address(), {"node", "drain", "gpu-3", "--wait"}));
  process.out.WaitFor("still there");
  v1::Node empty;
  empty.set_name("gpu-3");
  empty.set_state(v1::NODE_STATE_READY);
  empty.mutable_set_aside()->set_drain(true);
  empty.mutable_set_aside()->set_empty(true);
  daemon_.PutNode(empty);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.out.text(), HasSubstr("gpu-3 is drained and empty: nothing runs there"));
  EXPECT_THAT(RunOn({"nodes"}).out, ContainsRegex("gpu-3 +drained"));
  EXPECT_THAT(RunOn({"node", "undrain", "gpu-3"}).out, HasSubstr("gpu-3 may be used again"));
  EXPECT_THAT(RunOn({"nodes"}).out, ContainsRegex("gpu-3 +ready"));
}

TEST_F(Operating, AForgottenNodeIsGone) {
  PutNode("gpu-3");
  EXPECT_THAT(RunOn({"node", "forget", "gpu-3"}).out, HasSubstr("gpu-3 is forgotten"));
  const auto again = RunOn({"node", "forget", "gpu-3"});
  EXPECT_EQ(again.exit_code, 3) << again.err;
}

TEST_F(Operating, ACordonedNodeKeepsWhatRuns) {
  PutNode("gpu-3", 12);
  EXPECT_THAT(RunOn({"node", "cordon", "gpu-3"}).out,
              HasSubstr("gpu-3 is cordoned: nothing new is placed there, and 1 job (12) goes on"));
  EXPECT_FALSE(daemon_.set_asides()[0].drain());
}

TEST_F(Operating, SeveralNodesAreSetAsideAndUsedAgainByOneCommand) {
  PutNode("gpu-3");
  PutNode("gpu-4", 12);
  const auto done = RunOn({"node", "drain", "gpu-3", "gpu-9", "gpu-4"});
  EXPECT_EQ(done.exit_code, 3) << "of the one that is not there";
  EXPECT_THAT(done.err, HasSubstr("there is no node gpu-9"));
  EXPECT_THAT(done.out, HasSubstr("gpu-4 is being drained"));
  const auto again = RunOn({"node", "undrain", "gpu-3", "gpu-4", "-o", "json"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(nlohmann::json::parse(again.out)[1]["name"], "gpu-4");
}

TEST_F(Operating, AnUnknownNodeIsAnsweredWithTheNearest) {
  PutNode("gpu-3");
  const auto done = RunOn({"node", "drain", "gpu3"});
  EXPECT_EQ(done.exit_code, 3);
  EXPECT_THAT(done.err, AllOf(HasSubstr("there is no node gpu3"), HasSubstr("did you mean 'gpu-3'?")));
}

TEST_F(Operating, NodeShowHasItsTimeline) {
  PutNode("gpu-3");
  daemon_.AddDecision(NodeEvent("gpu-3", v1::REASON_CODE_NODE_JOINED, "node gpu-3 has joined with 1 device"));
  const auto shown = RunOn({"node", "show", "gpu-3"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("gpu-3  ready"), HasSubstr("1 x cpu"),
                               ContainsRegex("NODE_JOINED +scheduler +node gpu-3 has joined")));
  const auto json = nlohmann::json::parse(RunOn({"node", "show", "gpu-3", "-o", "json"}).out);
  EXPECT_EQ(json["node"]["name"], "gpu-3");
  EXPECT_EQ(json["events"][0]["reason"], "REASON_CODE_NODE_JOINED");
}

TEST_F(Operating, NodeShowSaysWhatIsWrongWithADevice) {
  v1::Node node;
  node.set_name("gpu-3");
  node.set_state(v1::NODE_STATE_READY);
  for (uint32_t i = 0; i < 3; ++i) {
    auto& device = *node.add_devices();
    device.set_index(i);
    device.set_model("NVIDIA H100");
    device.set_memory_bytes(80ull << 30);
    device.mutable_reading()->set_busy_ratio(0.5);
  }
  node.mutable_devices(1)->mutable_reading()->set_error("power can't be read: GPU is lost");
  node.mutable_devices(2)->mutable_reading()->set_xid(79);
  node.mutable_devices(2)->mutable_reading()->set_throttled_by("heat");
  daemon_.PutNode(node);
  EXPECT_THAT(RunOn({"node", "show", "gpu-3"}).out,
              AllOf(HasSubstr("  device 1     power can't be read: GPU is lost\n"),
                    HasSubstr("  device 2     the driver reported Xid 79, held back by heat\n"),
                    Not(HasSubstr("device 0"))));
  node.set_state(v1::NODE_STATE_LOST);
  daemon_.PutNode(node);
  EXPECT_THAT(RunOn({"node", "show", "gpu-3"}).out, Not(HasSubstr("device 1"))) << "nobody knows it now";
}

TEST_F(Operating, NodeShowSaysWhichOfSeveralJobsHasADevice) {
  v1::Node node;
  node.set_name("gpu-3");
  node.set_state(v1::NODE_STATE_READY);
  for (uint32_t i = 0; i < 3; ++i) {
    auto& device = *node.add_devices();
    device.set_index(i);
    device.set_job_id(i < 2 ? 12 + i : 0);
  }
  node.mutable_devices(1)->mutable_reading()->set_xid(79);
  daemon_.PutNode(node);
  EXPECT_THAT(
      RunOn({"node", "show", "gpu-3"}).out,
      AllOf(HasSubstr("  device 0     job 12\n"),
            HasSubstr("  device 1     job 13, the driver reported Xid 79\n"), Not(HasSubstr("device 2"))));
}

TEST_F(Operating, EventsAreLinesAndFiltersGoToTheDaemon) {
  PutJob(3, v1::JOB_STATE_RUNNING);
  PutNode("gpu-3");
  daemon_.AddDecision(NodeEvent("gpu-3", v1::REASON_CODE_NODE_LOST, "node gpu-3 is lost"));
  v1::Event placed;
  placed.set_job_id(3);
  placed.set_from(v1::JOB_STATE_QUEUED);
  placed.set_to(v1::JOB_STATE_STARTING);
  placed.set_text("placed on gpu-3");
  placed.set_actor("scheduler");
  daemon_.AddDecision(placed);
  const auto done = RunOn({"events", "--job", "rn50", "--node", "gpu-3", "--since", "1h"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(ContainsRegex("gpu-3 +NODE_LOST +node gpu-3 is lost \\(scheduler\\)"),
                              ContainsRegex("job 3 +STARTING +placed on gpu-3")));
  const auto request = daemon_.event_watches().front();
  EXPECT_EQ(request.job_id(), 3U);
  EXPECT_EQ(request.node(), "gpu-3");
  EXPECT_TRUE(request.no_follow());
  EXPECT_GT(request.since_us(), NowMicros() - 3'700'000'000);
  EXPECT_EQ(RunOn({"events", "--node", "gpu-9"}).exit_code, 3);
  const auto json = RunOn({"events", "-o", "json", "--from-event", "2"}).out;
  ASSERT_THAT(Lines(json), SizeIs(1));
  EXPECT_EQ(nlohmann::json::parse(json)["number"], "2");
  const auto wide = Lines(RunOn({"events", "-o", "wide"}).out);
  ASSERT_THAT(wide, SizeIs(2));
  EXPECT_THAT(wide[1], AllOf(testing::StartsWith("     2  "), HasSubstr(" [QUEUED -> STARTING]")));
}

TEST_F(Operating, WhoFollowsEventsSeesThoseOfTheLastHourUnlessANumberIsGiven) {
  daemon_.AddDecision(NodeEvent("a", v1::REASON_CODE_NODE_JOINED, "first"));
  const auto since = [this](std::vector<std::string> more) {
    more.insert(more.begin(), {"--timeout", "1s", "events", "-f"});
    CliProcess process(CallTo(daemon_.address(), std::move(more)));
    process.out.WaitFor("first");
    daemon_.Stop();
    process.Wait();
    daemon_.Start();
    return daemon_.event_watches().back().since_us();
  };
  EXPECT_GT(since({}), NowMicros() - 3'700'000'000);
  EXPECT_EQ(since({"--from-event", "1"}), 0);
}

TEST_F(Operating, AListOfEventsIsReadOnWhereAStreamEndsBeforeThem) {
  for (int i = 0; i < 5; ++i) daemon_.AddDecision(NodeEvent("a", v1::REASON_CODE_NODE_JOINED, "again"));
  daemon_.LimitStreams(2);
  const auto done = RunOn({"events"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(Lines(done.out), SizeIs(5));
  daemon_.LimitStreams(0);
  EXPECT_EQ(RunOn({"events"}).exit_code, 4);
}

TEST_F(Operating, OnlyOfEventsThatNobodyReadItIsSaidThatTheyAreGone) {
  PutNode("gpu-3");
  daemon_.AddDecision(NodeEvent("gpu-3", v1::REASON_CODE_NODE_JOINED, "first"));
  CliProcess process(CallTo(daemon_.address(), {"--timeout", "3s", "events", "-f", "--node", "gpu-3"}));
  process.out.WaitFor("first");
  daemon_.PassOver(1000);
  daemon_.AddDecision(NodeEvent("gpu-3", v1::REASON_CODE_NODE_LOST, "second"));
  process.out.WaitFor("second");
  EXPECT_THAT(process.err.text(), Not(HasSubstr("no longer kept")));
  daemon_.Stop();
  process.err.WaitFor("goes on once imgd is back");
  daemon_.PassOver(1000);
  daemon_.Start();
  process.err.WaitFor("events up to number 2002 are no longer kept");
  daemon_.Stop();
  EXPECT_EQ(process.Wait(), 4);
}

TEST_F(Operating, OfEventsThatAStreamDidNotComeToItIsSaidThatTheyAreGone) {
  for (int i = 0; i < 100; ++i) daemon_.AddDecision(NodeEvent("a", v1::REASON_CODE_NODE_JOINED, "again"));
  daemon_.LimitStreams(1);
  CliProcess process(CallTo(daemon_.address(), {"--timeout", "3s", "events", "-f"}));
  process.out.WaitFor("again");
  daemon_.Stop();
  process.err.WaitFor("goes on once imgd is back");
  daemon_.PassOver(0);
  daemon_.Start();
  process.err.WaitFor("events up to number 100 are no longer kept");
  daemon_.Stop();
  EXPECT_EQ(process.Wait(), 4);
}

TEST_F(Operating, EventsAreFollowedOverARestartWithoutLossOrRepetition) {
  daemon_.AddDecision(NodeEvent("a", v1::REASON_CODE_NODE_JOINED, "first"));
  // It ends when the timeout is over and the daemon still away.
  CliProcess process(CallTo(daemon_.address(), {"--timeout", "3s", "events", "-f"}));
  process.out.WaitFor("first");
  daemon_.Stop();
  process.err.WaitFor("goes on once imgd is back");
  daemon_.Start();
  daemon_.AddDecision(NodeEvent("a", v1::REASON_CODE_NODE_LOST, "second"));
  process.out.WaitFor("second");
  daemon_.Stop();
  EXPECT_EQ(process.Wait(), 4);
  EXPECT_THAT(Lines(process.out.text()), SizeIs(2));
}

}  // namespace
}  // namespace imgd::cli
