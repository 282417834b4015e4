#include "server/rpc/testing/rpc_fixture.h"

namespace imgd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string File(const std::string& name, const std::string& more = "") {
  return fmt::format("name: {}\ndata: {{train: /data/train, val: /data/val}}\ntrain: {{epochs: 9}}\n{}", name,
                     more);
}

v1::TrainerEvent EpochEvent(uint32_t epoch, double top1) {
  v1::TrainerEvent event;
  event.mutable_epoch()->set_epoch(epoch);
  event.mutable_epoch()->set_val_top1(top1);
  return event;
}

struct SweepsRpc : RpcTest {
  std::string Refused(const std::string& yaml) {
    v1::SubmitJobResponse response;
    const auto status = Submit(yaml, response);
    EXPECT_FALSE(status.ok());
    v1::ErrorDetails details;
    details.ParseFromString(status.error_details());
    std::string text = status.error_message();
    if (!details.errors().empty()) text += " | " + details.errors(0).hint();
    return text;
  }
  v1::SubmitJobResponse Stored(const std::string& yaml, const std::string& key = "", bool dry_run = false) {
    v1::SubmitJobRequest request;
    request.set_job_yaml(yaml);
    request.set_owner("ada");
    request.set_idempotency_key(key);
    request.set_dry_run(dry_run);
    v1::SubmitJobResponse response;
    Context context;
    const auto status = jobs->SubmitJob(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  /// The job that is made of this file, which is that of the other job or a changed one.
  v1::Job Rerun(uint64_t of, const std::string& yaml, bool dry_run = false) {
    v1::SubmitJobRequest request;
    request.set_job_yaml(yaml);
    request.set_owner("ada");
    request.set_rerun_of(of);
    request.set_dry_run(dry_run);
    v1::SubmitJobResponse response;
    Context context;
    const auto status = jobs->SubmitJob(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job();
  }
  v1::Sweep Sweep(uint64_t id) {
    v1::GetSweepRequest request;
    request.set_id(id);
    v1::GetSweepResponse response;
    Context context;
    EXPECT_TRUE(jobs->GetSweep(&context, request, &response).ok());
    return response.sweep();
  }
  std::vector<std::string> NamesOfSweep(uint64_t id) {
    v1::ListJobsRequest request;
    request.set_sweep_id(id);
    v1::ListJobsResponse response;
    Context context;
    EXPECT_TRUE(jobs->ListJobs(&context, request, &response).ok());
    std::vector<std::string> names;
    for (const auto& job : response.jobs()) names.push_back(job.name());
    return names;
  }
};

TEST_F(SweepsRpc, ANameIsTheOwnersNewestJobOfThatName) {
  Submit(File("pre"));
  const uint64_t pre = Submit(File("pre"));
  const uint64_t job = Submit(File("main", "after: [pre]\n"));
  const auto shown = Get(job).job();
  ASSERT_EQ(shown.after_size(), 1);
  EXPECT_EQ(shown.after(0).job_id(), pre);
  EXPECT_EQ(shown.reason(), v1::REASON_CODE_AFTER_JOB);
  EXPECT_EQ(shown.reason_text(), fmt::format("waits for job {} (pre) to complete", pre));
  EXPECT_EQ(shown.queue_position(), 0u);
  EXPECT_THAT(Refused(File("x", "after: [pree]\n")),
              HasSubstr("after: ada has no job or sweep named 'pree'"));
  EXPECT_THAT(Refused(File("x", "after: [99]\n")), HasSubstr(":4:8: after: there is no job 99"));
  v1::SubmitJobRequest request;
  request.set_job_yaml(File("x", "after: [pre]\n"));
  request.set_owner("bob");
  v1::SubmitJobResponse response;
  Context context;
  const auto status = jobs->SubmitJob(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr(fmt::format("somebody else's job {} is called so", pre)));
}

TEST_F(SweepsRpc, OneThatEndedLongAgoIsFoundAndOverARestartItStillWaits) {
  const uint64_t old = Submit(File("old"));
  ASSERT_TRUE(Cancel(old).ok());
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(Cancel(Submit(kJob)).ok());
  const uint64_t any = Submit(File("any", fmt::format("after: [{{job: {}, when: any}}]\n", old)));
  EXPECT_NE(Get(any).job().reason(), v1::REASON_CODE_AFTER_JOB);
  EXPECT_THAT(Refused(File("ok", "after: [old]\n")), HasSubstr("has ended as CANCELLED already"));

  const uint64_t next = Submit(File("next", fmt::format("after: [{}]\nnot_before: 1h\n", any)));
  daemon.reset();
  StartDaemon();
  EXPECT_EQ(Get(next).job().reason(), v1::REASON_CODE_AFTER_JOB);
  EXPECT_GT(Get(next).job().not_before_us(), clock.Wall().micros);
  ASSERT_TRUE(Cancel(any).ok());
  WaitFor(next, v1::JOB_STATE_FAILED);
  EXPECT_EQ(Get(next).job().reason(), v1::REASON_CODE_AFTER_NEVER);
}

TEST_F(SweepsRpc, ANameIsTheNewestJobAlsoWhereAnOlderOneIsNamedByItsNumber) {
  const uint64_t old = Submit(File("pre"));
  ASSERT_TRUE(Cancel(old).ok());
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(Cancel(Submit(kJob)).ok());
  const uint64_t newer = Submit(File("pre"));
  const std::string both = fmt::format("after: [{{job: {}, when: any}}, pre]\n", old);
  const auto shown = Get(Submit(File("main", both))).job();
  ASSERT_EQ(shown.after_size(), 2);
  EXPECT_EQ(shown.after(1).job_id(), newer);
}

TEST_F(SweepsRpc, ADryRunLooksAtWhatItComesAfterAndStoresNothing) {
  const uint64_t pre = Submit(File("pre"));
  const auto dry = Stored(File("main", "after: [pre]\n"), "", true);
  ASSERT_EQ(dry.job().after_size(), 1);
  EXPECT_EQ(dry.job().after(0).job_id(), pre);
  ASSERT_TRUE(Cancel(pre).ok());
  const auto ended = Stored(File("main", "after: [{job: pre, when: any}]\n"), "", true);
  ASSERT_EQ(ended.job().after_size(), 1);
  EXPECT_EQ(ended.job().after(0).ended(), v1::JOB_STATE_CANCELLED) << "it would not be waited for";
  EXPECT_EQ(ended.job().reason(), v1::REASON_CODE_NO_NODES);
  const auto sweep = Stored(File("rn18", "sweep: {grid: {seed: [1, 2, 3]}, max_running: 2}\n"), "", true);
  EXPECT_EQ(sweep.sweep().members(), 3u);
  ASSERT_EQ(sweep.settings_size(), 3);
  EXPECT_EQ(sweep.settings(2).settings(0).value(), "3");
  EXPECT_EQ(sweep.job().reason(), v1::REASON_CODE_NO_NODES) << "what its first job would wait for";
  EXPECT_EQ(List().jobs_size(), 1);
}

TEST_F(SweepsRpc, WhatWaitsForATimeSaysWhenItWillProbablyStart) {
  FakeAgent agent(channel, "a", 1);
  const auto dry = Stored(File("main", "not_before: 2h\n"), "", true).job();
  EXPECT_EQ(dry.reason(), v1::REASON_CODE_NOT_BEFORE);
  EXPECT_EQ(dry.expected_start_us(), dry.not_before_us());
  const auto job = Get(Submit(File("main", "not_before: 2h\n"))).job();
  EXPECT_EQ(job.expected_start_us(), job.not_before_us());
}

TEST_F(SweepsRpc, ATimeCenturiesAwayIsThatTime) {
  FakeAgent agent(channel, "a", 1);
  const std::string file = File("main", "not_before: 2500-12-31T23:59:59Z\n");
  const auto dry = Stored(file, "", true).job();
  EXPECT_EQ(dry.not_before_us(), 16'756'761'599'000'000);
  EXPECT_EQ(dry.expected_start_us(), dry.not_before_us());
  const auto job = Get(Submit(file)).job();
  EXPECT_EQ(job.expected_start_us(), job.not_before_us());
  const auto past = Stored(File("main", "not_before: 2020-02-20T00:00:00Z\n"), "", true).job();
  EXPECT_EQ(past.reason(), v1::REASON_CODE_PLACED);
}

TEST_F(SweepsRpc, ADryRunSaysWhetherTheClusterWouldHaveToBeAnother) {
  daemon.reset();
  config.quotas.user.devices = 2;
  StartDaemon();
  EXPECT_FALSE(Stored(File("early", ""), "", true).cannot_start()) << "nodes will join";
  FakeAgent agent(channel, "a", 4);
  const std::string both = "resources: {ranks_per_node: 2}\n";
  EXPECT_FALSE(Stored(File("fits", both), "", true).cannot_start());
  Submit(File("first", both));
  const auto waits = Stored(File("waits", both), "", true);
  EXPECT_EQ(waits.job().reason(), v1::REASON_CODE_QUOTA);
  EXPECT_FALSE(waits.cannot_start()) << "until ada's other job has ended";
  const auto quota = Stored(File("big", "resources: {ranks_per_node: 4}\n"), "", true);
  EXPECT_TRUE(quota.cannot_start());
  EXPECT_EQ(quota.job().reason(), v1::REASON_CODE_QUOTA);
  EXPECT_THAT(quota.job().reason_text(),
              HasSubstr("it could not start on the cluster as it is: user ada may have 2 devices at once"));
  const auto never = Stored(File("wide", "resources: {nodes: 2}\n"), "", true);
  EXPECT_TRUE(never.cannot_start());
  EXPECT_EQ(never.job().reason(), v1::REASON_CODE_NEVER_FITS);
  EXPECT_EQ(never.job().expected_start_us(), 0);
  EXPECT_THAT(never.job().reason_text(),
              HasSubstr("it could not start on the cluster as it is: needs 2 nodes"));
  EXPECT_EQ(never.warnings_size(), 0) << "it is said once";
}

TEST_F(SweepsRpc, ACordonedNodeThatAQuotaAllowsMayComeBack) {
  daemon.reset();
  config.quotas.user.devices = 4;
  StartDaemon();
  FakeAgent small(channel, "a", 4);
  FakeAgent large(channel, "b", 8);
  v1::SetAsideNodeRequest cordon;
  cordon.set_name("a");
  cordon.set_actor("ada");
  v1::SetAsideNodeResponse cordoned;
  Context context;
  ASSERT_TRUE(v1::NodeService::NewStub(channel)->SetAsideNode(&context, cordon, &cordoned).ok());
  const std::string file = File("whole", "resources: {whole_nodes: true}\n");
  const auto dry = Stored(file, "", true);
  EXPECT_FALSE(dry.cannot_start());
  EXPECT_EQ(dry.job().reason(), v1::REASON_CODE_QUOTA);
  EXPECT_THAT(dry.job().reason_text(),
              HasSubstr("it would wait: user ada may have 4 devices at once and has 0; it needs 1 node for "
                        "itself, and too few that can be used have at most 4 devices"));
  EXPECT_EQ(Stored(file).warnings_size(), 0);
}

TEST_F(SweepsRpc, ASubmitWarnsOfWhatItsQuotaForbids) {
  daemon.reset();
  config.quotas.user.devices = 2;
  config.quotas.projects["vision"].devices = 1;
  StartDaemon();
  FakeAgent agent(channel, "a", 4);
  const std::string text =
      "user ada may have 2 devices at once and has 0; it needs 4, which is more than the quota, so that it "
      "can't start";
  EXPECT_THAT(Stored(File("big", "resources: {ranks_per_node: 4}\n")).warnings(), ElementsAre(text));
  EXPECT_THAT(Stored(File("sizes", "sweep: {grid: {resources.ranks_per_node: [1, 4]}}\n")).warnings(),
              ElementsAre(text));
  EXPECT_THAT(Stored(File("whole", "resources: {whole_nodes: true}\n")).warnings(),
              ElementsAre(HasSubstr("too few have at most 2 devices, so that it can't start")));
  EXPECT_THAT(Stored(File("ours", "project: vision\nresources: {ranks_per_node: 2}\n")).warnings(),
              ElementsAre(HasSubstr("project vision may have 1 device at once")));
  EXPECT_EQ(Stored(File("fits", "resources: {ranks_per_node: 2}\n")).warnings_size(), 0);
  EXPECT_EQ(Stored(File("waits", "resources: {ranks_per_node: 2}\n")).warnings_size(), 0);
  const auto dry = Stored(File("big", "resources: {ranks_per_node: 4}\nnot_before: 2h\n"), "", true);
  EXPECT_THAT(dry.job().reason_text(), HasSubstr("it needs 4, which is more than the quota"));
  EXPECT_EQ(dry.warnings_size(), 0) << "it is said once";
}

TEST_F(SweepsRpc, HowManyNodesCanGiveWhatAGangNeedsIsCountedByItsFolder) {
  { const FakeAgent away(channel, "b", 1, {}, "", "other"); }
  daemon.reset();
  StartDaemon();
  FakeAgent agent(channel, "a", 1);
  const std::string text = "that share /ck, which only 1 node can give";
  const std::string gang = File("wide", "resources: {nodes: 4}\ncheckpoint: {dir: /ck}\n");
  const auto dry = Stored(gang, "", true);
  EXPECT_THAT(dry.job().reason_text(), HasSubstr(text));
  EXPECT_EQ(dry.warnings_size(), 0) << "it is said once";
  EXPECT_THAT(Stored(gang).warnings(), ElementsAre(HasSubstr(text)));
}

TEST_F(SweepsRpc, ADryRunSaysThatWhatItWouldComeAfterCanNeverStart) {
  FakeAgent agent(channel, "a", 1);
  Submit(File("wide", "resources: {nodes: 2}\n"));
  const std::string text = "job 1 (wide) could not start on the cluster as it is";
  const std::string next = File("next", "after: [wide]\n");
  const auto dry = Stored(next, "", true);
  EXPECT_TRUE(dry.cannot_start());
  EXPECT_EQ(dry.job().reason_text(), text);
  EXPECT_THAT(Get(Submit(next)).job().reason_text(), HasSubstr("; " + text));
}

TEST_F(SweepsRpc, WhatIsHeldBackAndCanNeverStartSaysSoAndNoTime) {
  daemon.reset();
  config.quotas.user.devices = 2;
  StartDaemon();
  FakeAgent agent(channel, "a", 4);
  const std::string after =
      fmt::format("after: [{}]\n", Submit(File("pre", "resources: {ranks_per_node: 2}\n")));
  for (const std::string& held : {after, std::string("not_before: 2h\n")}) {
    const auto quota = Stored(File("big", "resources: {ranks_per_node: 4}\n" + held), "", true).job();
    EXPECT_EQ(quota.reason(), v1::REASON_CODE_QUOTA) << held;
    EXPECT_EQ(
        quota.reason_text(),
        "then it could not start on the cluster as it is: user ada may have 2 devices at once and has 2; "
        "it needs 4, which is more than the quota, so that it can't start");
    EXPECT_EQ(quota.expected_start_us(), 0);
    const auto never = Stored(File("wide", "resources: {nodes: 2}\n" + held), "", true);
    EXPECT_EQ(never.job().reason(), v1::REASON_CODE_NEVER_FITS) << held;
    EXPECT_THAT(never.job().reason_text(),
                AllOf(HasSubstr("then it could not start on the cluster as it is: needs 2 "
                                "nodes"),
                      HasSubstr("which only 1 node can give")));
    EXPECT_EQ(never.job().expected_start_us(), 0);
    EXPECT_TRUE(never.cannot_start());
    EXPECT_EQ(never.warnings_size(), 0) << "it is said once";
    // That others of ada's hold all that she may have is over when they have ended.
    const auto fits = Stored(File("next", "resources: {ranks_per_node: 2}\n" + held), "", true).job();
    EXPECT_EQ(fits.reason(), held == after ? v1::REASON_CODE_AFTER_JOB : v1::REASON_CODE_NOT_BEFORE);
    EXPECT_EQ(fits.reason_text(), "");
  }
}

TEST_F(SweepsRpc, WhereJobsAskForOtherThingsItIsSaidWhichOneWasLookedAt) {
  FakeAgent agent(channel, "a", 4);
  const auto same = Stored(File("rn18", "sweep: {grid: {seed: [1, 2]}}\n"), "", true);
  EXPECT_EQ(same.warnings_size(), 0);
  const auto other = Stored(File("rn18", "sweep: {grid: {resources.ranks_per_node: [1, 2]}}\n"), "", true);
  EXPECT_THAT(other.warnings(),
              ElementsAre("the jobs of the sweep do not all ask for the same: when one would "
                          "start is said of rn18[1] alone"));
}

TEST_F(SweepsRpc, PoliciesBoundTheSweepAndEachOfItsJobs) {
  daemon.reset();
  auto root = YamlMap::Parse(
      "policies: [{name: few, at_most: {sweep.jobs: 2, train.epochs: 9}, defaults: {time_limit: 1h}}]",
      "imgd.yaml");
  config.policies = ReadPolicies(*root);
  StartDaemon();
  EXPECT_THAT(Refused(File("rn18", "sweep: {grid: {seed: [1, 2, 3]}}\n")),
              HasSubstr("sweep.jobs: is 3, and at most 2 is allowed by policy few"));
  EXPECT_THAT(Refused(File("rn18", "sweep: {grid: {train.epochs: [8, 10]}}\n")),
              HasSubstr("train.epochs: is 10, and at most 9 is allowed by policy few"));
  const uint64_t id = Stored(File("rn18", "sweep: {grid: {train.epochs: [8, 9]}}\n")).sweep().id();
  EXPECT_EQ(Get(id + 1).job().time_limit_ms(), 3'600'000);
}

TEST_F(SweepsRpc, AllThatPoliciesRefuseOfItsJobsIsToldWithTheJobsThatHaveIt) {
  daemon.reset();
  auto root = YamlMap::Parse(
      "policies:\n  - {name: caps, at_most: {time_limit: 5m, priority: 3}, defaults: {max_restarts: 1}}\n"
      "  - {name: ours, projects: [vision], at_most: {grace: 9s}}\n",
      "imgd.yaml");
  config.policies = ReadPolicies(*root);
  StartDaemon();
  const auto refused = [this](const std::string& more) {
    v1::SubmitJobResponse response;
    v1::ErrorDetails details;
    details.ParseFromString(
        Submit("# a sweep\n\nname: rn18\ndata: {train: /x}\n" + more, response).error_details());
    std::vector<std::string> out;
    for (const auto& error : details.errors()) {
      out.push_back(error.line() == 0
                        ? fmt::format("{}: {}", error.file(), error.message())
                        : fmt::format("{}:{}: {}", error.file(), error.line(), error.message()));
    }
    return out;
  };
  const std::string is = "and at most 5m is allowed by policy caps";
  EXPECT_THAT(refused("sweep:\n  grid: {time_limit: [1m, 9m, 2m, 8m]}\n"),
              ElementsAre("sweep member 2 (time_limit=9m): time_limit: is 9m, " + is,
                          "sweep member 4 (time_limit=8m): time_limit: is 8m, " + is));
  EXPECT_THAT(refused("sweep: {list: [{time_limit: 9m}, {time_limit: 1m}]}\n"),
              ElementsAre("sweep member 1 (time_limit=9m): time_limit: is 9m, " + is));
  EXPECT_THAT(refused("time_limit: 1m\npriority: 4\nsweep: {grid: {seed: [1, 2, 3]}}\n"),
              ElementsAre("job.yaml:6: priority: is 4, and at most 3 is allowed by policy caps"))
      << "all have it, and it is said once";
  EXPECT_THAT(
      refused("time_limit: 1m\ngrace: 10s\nsweep: {grid: {project: [text, vision], seed: [1, 2]}}\n"),
      ElementsAre("job.yaml:6: grace: is 10s, and at most 9s is allowed by policy ours (sweep member 3 "
                  "(project=vision, seed=1)) (and so 1 more of its jobs)"));
  EXPECT_THAT(
      refused("time_limit: 1m\nsweep: {grid: {data.train: ['dataset:a/x', 'dataset:b/x']}}\n"),
      ElementsAre(HasSubstr("no data set 'a' is registered"), HasSubstr("no data set 'b' is registered")));
  const auto many =
      refused("sweep: {grid: {time_limit: [6m, 7m, 8m, 9m, 10m, 11m, 12m, 13m, 14m, 15m, 16m, 17m]}}\n");
  ASSERT_EQ(many.size(), 11U);
  EXPECT_EQ(many.back(), "job.yaml: and 2 more in jobs of the sweep");
}

TEST_F(SweepsRpc, ASweepKeepsTheRulesOfEveryProjectThatItsJobsAreOf) {
  daemon.reset();
  auto root = YamlMap::Parse(
      "policies: [{name: few, projects: [vision], at_most: {sweep.jobs: 2, sweep.max_running: 1}}]",
      "imgd.yaml");
  config.policies = ReadPolicies(*root);
  StartDaemon();
  EXPECT_THAT(
      Refused(File("rn18", "sweep: {grid: {project: [text, vision], seed: [1, 2]}, max_running: 1}\n")),
      HasSubstr("sweep.jobs: is 4, and at most 2 is allowed by policy few"));
  EXPECT_THAT(Refused(File("rn18", "sweep: {grid: {project: [text, vision]}, max_running: 2}\n")),
              HasSubstr("sweep.max_running: is 2, and at most 1 is allowed by policy few"));
  Stored(File("rn18", "sweep: {grid: {project: [text, vision]}, max_running: 1}\n"));
  Stored(File("rn18", "sweep: {grid: {project: [text, speech], seed: [1, 2]}}\n"));
}

TEST_F(SweepsRpc, AWholeSweepIsWaitedForByItsName) {
  Submit(File("rn18"));
  const uint64_t sweep = Stored(File("rn18", "sweep: {grid: {seed: [1, 2, 3]}}\n")).sweep().id();
  const auto shown = Get(Submit(File("best", "after: [{job: rn18, when: any}]\n"))).job();
  ASSERT_EQ(shown.after_size(), 3);
  EXPECT_EQ(shown.after(0).job_id(), sweep);
  EXPECT_EQ(shown.after(2).job_name(), "rn18[3]");
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Get(shown.id()).job().reason(), v1::REASON_CODE_AFTER_JOB);
    ASSERT_TRUE(Cancel(sweep + i).ok());
  }
  EXPECT_NE(Get(shown.id()).job().reason(), v1::REASON_CODE_AFTER_JOB);
  // All had ended, and were forgotten in memory perhaps.
  EXPECT_EQ(Get(Submit(File("again", "after: [{job: rn18, when: any}]\n"))).job().after_size(), 3);
  EXPECT_THAT(Refused(File("ok", "after: [rn18]\n")), HasSubstr("has ended as CANCELLED already"));
  const uint64_t newer = Submit(File("rn18"));
  EXPECT_EQ(Get(Submit(File("one", "after: [rn18]\n"))).job().after(0).job_id(), newer);
}

TEST_F(SweepsRpc, ARerunOfASweepsJobHasItsNameAndTheSweepItsOwn) {
  const uint64_t sweep = Stored(File("rn18", "sweep: {grid: {seed: [1, 2]}}\n")).sweep().id();
  for (uint64_t i = 0; i < 2; ++i) ASSERT_TRUE(Cancel(sweep + i).ok());
  const std::string file = Get(sweep).job().job_yaml();
  EXPECT_EQ(Rerun(sweep, file, true).name(), "rn18[1]");
  const auto rerun = Rerun(sweep, file);
  EXPECT_EQ(rerun.name(), "rn18[1]");
  EXPECT_EQ(Get(Submit(File("next", "after: [\"rn18[1]\"]\n"))).job().after(0).job_id(), rerun.id());
  const auto all = Get(Submit(File("all", "after: [{job: rn18, when: any}]\n"))).job();
  ASSERT_EQ(all.after_size(), 2);
  EXPECT_EQ(all.after(0).job_id(), sweep);
  EXPECT_EQ(Rerun(rerun.id(), file).name(), "rn18[1]") << "whose file has the sweep's name, too";
  EXPECT_EQ(Rerun(sweep, File("other")).name(), "other");
}

TEST_F(SweepsRpc, OfASweepThatIsWaitedForDeletedJobsDoNotCount) {
  const uint64_t sweep = Stored(File("rn18", "sweep: {grid: {seed: [1, 2]}}\n")).sweep().id();
  for (uint64_t i = 0; i < 2; ++i) ASSERT_TRUE(Cancel(sweep + i).ok());
  v1::DeleteJobRequest request;
  request.set_id(sweep);
  request.set_actor("ada");
  v1::DeleteJobResponse response;
  Context context;
  ASSERT_TRUE(jobs->DeleteJob(&context, request, &response).ok());
  const auto shown = Get(Submit(File("all", "after: [{job: rn18, when: any}]\n"))).job();
  ASSERT_EQ(shown.after_size(), 1);
  EXPECT_EQ(shown.after(0).job_id(), sweep + 1);
}

TEST_F(SweepsRpc, ASweepIsManyJobsInOneSubmissionAndOnceForAKey) {
  const std::string file =
      File("rn18", "sweep: {grid: {optimizer.lr: [0.1, 0.2], seed: [5]}, max_running: 1}\n");
  const auto first = Stored(file, "k");
  const uint64_t id = first.sweep().id();
  EXPECT_EQ(first.job().id(), id);
  EXPECT_THAT(NamesOfSweep(id), ElementsAre("rn18[2]", "rn18[1]"));
  const auto again = Stored(file, "k");
  EXPECT_TRUE(again.existed());
  EXPECT_EQ(again.sweep().id(), id);
  EXPECT_EQ(List().jobs_size(), 2);
  v1::SubmitJobResponse refused;
  EXPECT_THAT(Submit(file + "seed: 1\n", refused, "k").error_message(),
              HasSubstr("which was submitted with another job file"));
  const auto second = Get(id + 1).job();
  EXPECT_EQ(second.reason(), v1::REASON_CODE_SWEEP_FULL);
  EXPECT_THAT(second.reason_text(), HasSubstr("; it is the turn of job 1 (rn18[1]), which waits itself"));
  EXPECT_THAT(second.job_yaml(),
              AllOf(HasSubstr("lr: 0.2"), HasSubstr("seed: 5"), testing::Not(HasSubstr("sweep"))));
  EXPECT_THAT(second.checkpoint_dir(), HasSubstr("/rn18-2-"));
  EXPECT_EQ(second.sweep_settings(0).name(), "optimizer.lr");
  daemon.reset();
  StartDaemon();
  EXPECT_EQ(Sweep(id + 1).id(), id);
  EXPECT_EQ(Get(id + 1).job().reason(), v1::REASON_CODE_SWEEP_FULL);

  v1::CancelSweepRequest request;
  request.set_id(id);
  request.set_actor("ada");
  v1::CancelSweepResponse response;
  Context context;
  EXPECT_TRUE(jobs->CancelSweep(&context, request, &response).ok());
  EXPECT_EQ(response.cancelled(), 2u);
  const auto listed = List();
  for (const auto& job : listed.jobs()) EXPECT_EQ(job.state(), v1::JOB_STATE_CANCELLED);
  Context another;
  EXPECT_TRUE(jobs->CancelSweep(&another, request, &response).ok());
  EXPECT_EQ(response.cancelled(), 0u);
}

TEST_F(SweepsRpc, ABadMemberLeavesNoneStored) {
  EXPECT_THAT(Refused(File("rn18", "sweep: {grid: {optimizer.lr: [0.1, fast]}}\n")),
              HasSubstr("sweep member 2 (optimizer.lr=fast): optimizer.lr: found 'fast'"));
  EXPECT_EQ(List().jobs_size(), 0);
}

TEST_F(SweepsRpc, TheWorstIsStoppedByWhatTrainersReportAndItIsKnownAfterARestart) {
  FakeAgent agent(channel, "a", 2);
  const uint64_t id =
      Stored(File("rn18", "sweep: {grid: {seed: [1, 2]}, halving: {first: 2, factor: 2}}\n")).sweep().id();
  std::map<uint64_t, v1::RunId> runs;
  while (runs.size() < 2) {
    const auto command = agent.NextCommand();
    ASSERT_TRUE(command.has_value());
    if (command->has_prepare_run()) agent.Prepared(command->prepare_run().run());
    if (!command->has_start_run()) continue;
    const v1::RunId run = command->start_run().run();
    runs[run.job_id()] = run;
    agent.Phase(run, v1::RUN_PHASE_RUNNING);
  }
  EXPECT_EQ(agent.Events(runs[id], 0, 1, {StartedEvent(), EpochEvent(1, 0.9), EpochEvent(2, 0.3)}), 3u);
  EXPECT_EQ(agent.Events(runs[id + 1], 0, 1, {StartedEvent(), EpochEvent(2, 0.4)}), 2u);
  // The command to stop came before the acknowledgement.
  agent.Phase(runs[id], v1::RUN_PHASE_GONE, {MakeExit(0, 0, 15)});
  WaitFor(id, v1::JOB_STATE_COMPLETED);
  EXPECT_EQ(
      Get(id).job().reason_text(),
      fmt::format("stopped at epoch 2: top1 30.0 % is not among the best 1 of the 2 of sweep {} (rn18)", id));
  agent.End();
  daemon.reset();
  StartDaemon();
  const auto halving = Sweep(id).halving();
  ASSERT_EQ(halving.rungs_size(), 3);
  EXPECT_EQ(halving.rungs(0).kept(), 1u);
  EXPECT_EQ(halving.rungs(0).results().at(id), 0.3);
  EXPECT_EQ(halving.rungs(0).results().at(id + 1), 0.4);
}

}  // namespace
}  // namespace imgd
