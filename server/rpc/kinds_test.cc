// Commands and conversions through the daemon, and data sets that conversions are still to make.
#include "common/job_file.h"
#include "imgd/v1/dataset.grpc.pb.h"
#include "server/rpc/testing/rpc_fixture.h"

namespace imgd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kCommand =
    "name: sh\ncommand: {run: [torchrun, train.py], per: node}\nresources: {ranks_per_node: 2}\n";
constexpr const char* kConversion =
    "name: conv\nconvert: {source: /data/in, target: /data/out, register: shapes}\n";

std::string Training(const std::string& more) {
  return "name: rn18\ndata: {train: dataset:shapes/train}\n" + more;
}

struct KindsRpc : RpcTest {
  void SetUp() override {
    config.commands = true;
    RpcTest::SetUp();
  }
  std::string Refused(const std::string& yaml) {
    v1::SubmitJobResponse response;
    const auto status = Submit(yaml, response);
    EXPECT_FALSE(status.ok()) << yaml;
    v1::ErrorDetails details;
    details.ParseFromString(status.error_details());
    std::string text = status.error_message();
    if (!details.errors().empty()) text += " | " + details.errors(0).hint();
    return text;
  }
  /// "shapes /data/out", with " by 1" while job 1 is to make it.
  std::vector<std::string> Datasets() {
    v1::ListDatasetsResponse response;
    Context context;
    EXPECT_TRUE(v1::DatasetService::NewStub(channel)->ListDatasets(&context, {}, &response).ok());
    std::vector<std::string> out;
    for (const auto& set : response.datasets())
      out.push_back(fmt::format("{} {}{}", set.name(), set.address(),
                                set.made_by() == 0 ? "" : fmt::format(" by {}", set.made_by())));
    return out;
  }
  void Register(const std::string& name, const std::string& address) {
    v1::RegisterDatasetRequest request;
    request.mutable_dataset()->set_name(name);
    request.mutable_dataset()->set_address(address);
    v1::RegisterDatasetResponse response;
    Context context;
    ASSERT_TRUE(v1::DatasetService::NewStub(channel)->RegisterDataset(&context, request, &response).ok());
  }
  void Run(FakeAgent& agent, std::vector<v1::RankExit> exits) {
    const auto run = Prepare(agent);
    agent.Phase(run, v1::RUN_PHASE_RUNNING);
    agent.Phase(run, v1::RUN_PHASE_GONE, std::move(exits));
  }
  v1::RunId Prepare(FakeAgent& agent) {
    const auto prepare = agent.NextCommand();
    EXPECT_TRUE(prepare && prepare->has_prepare_run());
    agent.Prepared(prepare->prepare_run().run());
    const auto command = agent.NextCommand();
    EXPECT_TRUE(command && command->has_start_run());
    start = command->start_run();
    return start.run();
  }
  v1::StartRun start;
};

TEST_F(KindsRpc, CommandsAreRefusedUnlessTheOperatorAllowsThem) {
  daemon.reset();
  config.commands = false;
  StartDaemon();
  const std::string swept = std::string(kCommand) + "sweep: {grid: {command.env.LR: [1, 2]}}\n";
  for (const std::string& yaml : {std::string(kCommand), swept}) {
    EXPECT_THAT(Refused(yaml),
                AllOf(HasSubstr("job.yaml:2:10: command: commands are not allowed here"),
                      HasSubstr("| whoever runs imgd allows them by commands: true in imgd.yaml")));
  }
  EXPECT_GT(Submit(kConversion), 0u) << "they are no arbitrary programs";
}

TEST_F(KindsRpc, NoJobOfASweepIsOfAnotherKindThanItsFile) {
  for (const bool commands : {false, true}) {
    daemon.reset();
    config.commands = commands;
    StartDaemon();
    EXPECT_THAT(
        Refused("name: a\ndata: {train: /x}\nsweep: {list: [{command.run: [sh, -c, id], data: ~}]}\n"),
        AllOf(HasSubstr("sweep member 1"), HasSubstr("a sweep's jobs are of one kind")));
  }
}

TEST_F(KindsRpc, ACommandRunsByItsProcessesAlone) {
  FakeAgent agent(channel, "a", 2);
  const auto id = Submit(kCommand);
  const auto run = Prepare(agent);
  EXPECT_EQ(start.kind(), v1::JOB_KIND_COMMAND);
  EXPECT_EQ(start.ranks(), 1u);
  EXPECT_THAT(start.devices(), ElementsAre(0, 1));
  agent.Phase(run, v1::RUN_PHASE_RUNNING);
  WaitFor(id, v1::JOB_STATE_RUNNING);
  const auto shown = Get(id).job();
  EXPECT_EQ(shown.kind(), v1::JOB_KIND_COMMAND);
  EXPECT_TRUE(shown.per_node());
  EXPECT_EQ(shown.placements(0).ranks(), 1u);
  EXPECT_EQ(agent.Lines(run, 0, 1, {"hello"}), 1u);
  agent.Phase(run, v1::RUN_PHASE_GONE, {MakeExit(0, 0)});
  EXPECT_THAT(States(Watch(id)), ElementsAre("JOB_STATE_QUEUED", "JOB_STATE_STARTING", "JOB_STATE_RUNNING",
                                             "JOB_STATE_COMPLETED"));
  v1::ReadLogsRequest logs;
  logs.set_id(id);
  EXPECT_THAT(Logs(logs), ElementsAre("0: hello"));
  EXPECT_TRUE(Get(id).job().rank_exits(0).program());
}

TEST_F(KindsRpc, ItIsTheSameOverARestartOfTheDaemon) {
  const auto id = Submit(kCommand);
  daemon.reset();
  StartDaemon();
  EXPECT_EQ(Get(id).job().kind(), v1::JOB_KIND_COMMAND);
  EXPECT_TRUE(Get(id).job().per_node());
}

TEST_F(KindsRpc, TheLastLineOfOneThatFailsIsInItsReason) {
  FakeAgent agent(channel, "a", 2);
  const auto id = Submit(std::string(kCommand) + "max_restarts: 0\n");
  auto exit = MakeExit(0, 3);
  exit.add_last_lines("on standard output alone");
  Run(agent, {exit});
  WaitFor(id, v1::JOB_STATE_FAILED);
  EXPECT_THAT(Get(id).job().reason_text(),
              HasSubstr("rank 0 on node a failed with exit code 3; last log line: on standard output alone"));
}

TEST_F(KindsRpc, PoliciesAreOfTheKindsThatHaveTheField) {
  daemon.reset();
  auto root = YamlMap::Parse(
      "policies:\n  - {name: short, at_most: {train.epochs: 10}, defaults: {train.epochs: 5}}\n"
      "  - {name: no, projects: [vision], one_of: {kind: [training, conversion]}}\n",
      "imgd.yaml");
  config.policies = ReadPolicies(*root);
  StartDaemon();
  EXPECT_GT(Submit(kCommand), 0u);
  EXPECT_THAT(Refused(std::string(kCommand) + "project: vision\n"),
              HasSubstr("kind: is 'command', and one of training, conversion is allowed by policy no"));
}

TEST_F(KindsRpc, ADryRunSaysWhatItWouldBe) {
  const v1::SubmitJobResponse response = DryRun(kConversion);
  EXPECT_EQ(response.job().kind(), v1::JOB_KIND_CONVERSION);
  EXPECT_THAT(Datasets(), IsEmpty());
}

TEST_F(KindsRpc, ASetThatIsStillToBeMadeIsForJobsThatComeAfterIt) {
  FakeAgent agent(channel, "a", 1);
  EXPECT_THAT(Refused(Training("after: []\n")), HasSubstr("no data set 'shapes' is registered"));
  const auto conversion = Submit(kConversion);
  EXPECT_THAT(Datasets(), ElementsAre(fmt::format("shapes /data/out by {}", conversion)));
  EXPECT_THAT(
      Refused(Training("")),
      AllOf(HasSubstr(fmt::format("data.train: data set 'shapes' is still to be made by job {}", conversion)),
            HasSubstr(fmt::format("| set after: [{}]", conversion))));
  EXPECT_THAT(Refused(Training("after: [{job: conv, when: any}]\n")), HasSubstr("is still to be made"));
  const auto job = Submit(Training("after: [conv]\n"));
  EXPECT_EQ(ParseJobFile(Get(job).job().job_yaml(), "")->data.train, "/data/out/train");
  Run(agent, {MakeExit(0, 0)});
  WaitFor(conversion, v1::JOB_STATE_COMPLETED);
  EXPECT_EQ(Get(conversion).job().reason_text(), "the data set is converted");
  EXPECT_THAT(Datasets(), ElementsAre("shapes /data/out"));
  WaitFor(job, v1::JOB_STATE_STARTING);
  EXPECT_GT(Submit(Training("")), 0u) << "now it is there for all";
}

TEST_F(KindsRpc, OneThatFailsTakesItsNameBackAndEndsThoseAfterIt) {
  FakeAgent agent(channel, "a", 1);
  const auto conversion = Submit(kConversion);
  const auto job = Submit(Training("after: [conv]\n"));
  Run(agent, {MakeExit(0, 2, 0, "imgcli: /data/in holds no data set")});
  WaitFor(job, v1::JOB_STATE_FAILED);
  EXPECT_THAT(Get(conversion).job().reason_text(), HasSubstr("/data/in holds no data set"));
  EXPECT_EQ(Get(job).job().reason(), v1::REASON_CODE_AFTER_NEVER);
  EXPECT_THAT(Datasets(), IsEmpty());
  const auto again = Submit(std::string(kConversion) + "not_before: 1h\n");
  EXPECT_THAT(Datasets(), ElementsAre(fmt::format("shapes /data/out by {}", again)));
  ASSERT_TRUE(Cancel(again).ok());
  EXPECT_THAT(Datasets(), IsEmpty());
}

TEST_F(KindsRpc, ASetThatSomebodyRegistersBesideItsConversionIsStillToBeMade) {
  FakeAgent agent(channel, "a", 1);
  const auto conversion = Submit(kConversion);
  Register("shapes", "/data/out");
  EXPECT_THAT(Datasets(), ElementsAre(fmt::format("shapes /data/out by {}", conversion)));
  EXPECT_THAT(Refused(Training("")), HasSubstr("is still to be made"));
  Run(agent, {MakeExit(0, 0)});
  WaitFor(conversion, v1::JOB_STATE_COMPLETED);
  EXPECT_THAT(Datasets(), ElementsAre("shapes /data/out"));
}

TEST_F(KindsRpc, ANameIsOfOneSet) {
  const auto first = Submit(kConversion);
  EXPECT_THAT(
      Refused(kConversion),
      HasSubstr(fmt::format("convert.register: data set 'shapes' is to be made by job {} already", first)));
  daemon.reset();
  StartDaemon();
  EXPECT_THAT(Datasets(), ElementsAre(fmt::format("shapes /data/out by {}", first)));
  Register("other", "/elsewhere");
  EXPECT_THAT(Refused("name: c\nconvert: {source: /x, target: /y, register: other}\n"),
              HasSubstr("convert.register: 'other' stands for /elsewhere already"));
  EXPECT_GT(Submit("name: c\nconvert: {source: /x, target: /elsewhere, register: other}\n"), 0u);
}

}  // namespace
}  // namespace imgd
