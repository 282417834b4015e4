// What is known of data sets: from a conversion's own process to who asks, by HTTP.
#include <nlohmann/json.hpp>

#include "common/dataset_limits.h"
#include "imgd/v1/dataset.grpc.pb.h"
#include "server/rpc/testing/rpc_fixture.h"
#include "server/web/testing/http_client.h"

namespace imgd {
namespace {

using testing::HasSubstr;
using testing::SizeIs;
using Json = nlohmann::json;

constexpr const char* kConversion =
    "name: conv\nconvert: {source: /data/in, target: /data/out, register: shapes}\n";

v1::TrainerEvent ProgressEvent(uint64_t done) {
  v1::TrainerEvent event;
  auto& progress = *event.mutable_dataset_progress();
  progress.set_doing("writing");
  progress.set_part("train");
  progress.set_done(done);
  progress.set_total(160);
  progress.set_shards_done(1);
  progress.set_shards(2);
  progress.set_job_id(99);  // imgd knows better
  return event;
}

v1::DatasetFacts Facts(const std::string& picture) {
  v1::DatasetFacts facts;
  auto& contents = *facts.mutable_contents();
  contents.set_version("9.9");
  contents.set_told_by("the king");
  for (const char* name : {"train", "val"}) {
    auto& part = *contents.add_parts();
    part.set_name(name);
    part.set_images(120);
    part.set_class_count(2);
    for (const char* one : {"cat", "dog"}) {
      auto& added = *part.add_classes();
      added.set_name(one);
      added.set_images(60);
    }
  }
  auto& sample = *contents.add_samples();
  sample.set_part("train");
  sample.set_class_name("cat");
  sample.set_picture("\xFF\xD8\xFF" + picture);
  contents.add_samples()->set_picture("<script>");
  auto& verification = *facts.mutable_verification();
  verification.set_images(240);
  verification.set_broken(1);
  auto& finding = *verification.add_findings();
  finding.set_place("train-000000.tar");
  finding.set_reason("is cut short");
  return facts;
}

v1::TrainerEvent FactsEvent(v1::DatasetFacts facts) {
  v1::TrainerEvent event;
  *event.mutable_dataset_facts() = std::move(facts);
  return event;
}

/// A daemon with HTTP.
struct DatasetFactsTest : RpcTest {
  void SetUp() override {
    RpcTest::SetUp();
    if (HasFatalFailure()) return;
    daemon.reset();
    config.commands = true;
    config.web.listen = "127.0.0.1:0";
    config.web.plain_http = true;
    StartDaemon();
  }
  web::TestAnswer Ask(const std::string& path) {
    web::TestConnection connection(daemon->web_port());
    return connection.Ask("GET", "/api/v1/datasets" + path).value_or(web::TestAnswer{});
  }
  Json Set(const std::string& name) {
    const auto answer = Ask("/" + name);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body, nullptr, false);
  }
  v1::RunId Start(FakeAgent& agent) {
    auto prepare = agent.NextCommand();
    while (prepare && prepare->has_forget_run()) prepare = agent.NextCommand();  // of the run before
    EXPECT_TRUE(prepare && prepare->has_prepare_run());
    agent.Prepared(prepare->prepare_run().run());
    const auto command = agent.NextCommand();
    EXPECT_TRUE(command && command->has_start_run());
    agent.Phase(command->start_run().run(), v1::RUN_PHASE_RUNNING);
    return command->start_run().run();
  }
  void Register(const std::string& name, const std::string& address, bool replace = false) {
    v1::RegisterDatasetRequest request;
    request.mutable_dataset()->set_name(name);
    request.mutable_dataset()->set_address(address);
    request.set_replace(replace);
    v1::RegisterDatasetResponse response;
    Context context;
    const auto status = v1::DatasetService::NewStub(channel)->RegisterDataset(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  grpc::Status Report(const std::string& name, const std::string& address, v1::DatasetFacts facts) {
    v1::ReportDatasetRequest request;
    request.set_name(name);
    request.set_address(address);
    request.set_actor("ada");
    *request.mutable_facts() = std::move(facts);
    v1::ReportDatasetResponse response;
    Context context;
    return v1::DatasetService::NewStub(channel)->ReportDataset(&context, request, &response);
  }
};

TEST_F(DatasetFactsTest, AConversionSaysHowFarItIsAndAtItsEndWhatItMade) {
  FakeAgent agent(channel, "a", 1);
  const auto id = Submit(kConversion);
  const auto run = Start(agent);
  EXPECT_FALSE(Set("shapes")["dataset"].contains("progress"));
  EXPECT_FALSE(Set("shapes")["facts"].contains("verification")) << "nobody has verified it";
  EXPECT_EQ(Set("shapes")["dataset"]["verified_us"], "0");
  ASSERT_EQ(agent.Events(run, 0, 1, {ProgressEvent(40)}), 1u);
  Json progress = Set("shapes")["dataset"]["progress"];
  EXPECT_EQ(progress["done"], "40");
  EXPECT_EQ(progress["shards"], "2");
  EXPECT_EQ(progress["job_id"], std::to_string(id));
  EXPECT_NE(progress["time_us"], "0");

  ASSERT_EQ(agent.Events(run, 0, 2, {FactsEvent(Facts("one"))}), 2u);
  const Json told = Set("shapes");
  EXPECT_EQ(told["dataset"]["images"], "240") << "both parts";
  EXPECT_EQ(told["dataset"]["classes"], 2);
  EXPECT_EQ(told["dataset"]["broken"], "1");
  EXPECT_EQ(told["facts"]["contents"]["told_by"], fmt::format("job {} on node a", id));
  EXPECT_EQ(told["facts"]["contents"]["version"], "9.9");
  EXPECT_EQ(told["facts"]["contents"]["samples"][0]["picture"], "") << "it has an address";
  EXPECT_EQ(told["facts"]["verification"]["findings"][0]["reason"], "is cut short");
  agent.Phase(run, v1::RUN_PHASE_GONE, {MakeExit(0, 0)});
  WaitFor(id, v1::JOB_STATE_COMPLETED);
  EXPECT_FALSE(Set("shapes")["dataset"].contains("progress")) << "it is done";

  daemon.reset();
  StartDaemon();
  EXPECT_EQ(Set("shapes")["facts"], told["facts"]) << "it is kept";
  EXPECT_EQ(Set("shapes")["dataset"]["described_us"], told["facts"]["contents"]["time_us"]);
}

TEST_F(DatasetFactsTest, ProgressOutlivesTheDaemon) {
  FakeAgent agent(channel, "a", 1);
  Submit(kConversion);
  ASSERT_EQ(agent.Events(Start(agent), 0, 1, {ProgressEvent(40)}), 1u);
  daemon.reset();
  StartDaemon();
  EXPECT_EQ(Set("shapes")["dataset"]["progress"]["done"], "40");
}

TEST_F(DatasetFactsTest, WhatAConversionSaidThatFailsGoesWithItsPromise) {
  FakeAgent agent(channel, "a", 1);
  const auto id = Submit(kConversion);
  const auto run = Start(agent);
  ASSERT_EQ(agent.Events(run, 0, 1, {ProgressEvent(40), FactsEvent(Facts("one"))}), 2u);
  agent.Phase(run, v1::RUN_PHASE_GONE, {MakeExit(0, 2, 0, "imgcli: no")});
  WaitFor(id, v1::JOB_STATE_FAILED);
  EXPECT_EQ(Ask("/shapes").status, 404) << "it never was";
  Register("shapes", "/data/out");
  EXPECT_EQ(Set("shapes")["facts"], Json::object());
}

TEST_F(DatasetFactsTest, OfASetThatIsMadeAgainTheProgressIsShownTooAndNobodyElseMaySpeakOfIt) {
  Register("shapes", "/data/out");
  Register("others", "/data/others");
  FakeAgent agent(channel, "a", 1);
  const auto command = Submit("name: sh\ncommand: {run: [x]}\n");
  auto run = Start(agent);
  agent.Events(run, 0, 1, {ProgressEvent(40), FactsEvent(Facts("one"))});
  EXPECT_FALSE(Set("shapes")["facts"].contains("contents")) << "a command makes no set";
  agent.Phase(run, v1::RUN_PHASE_GONE, {MakeExit(0, 0)});
  WaitFor(command, v1::JOB_STATE_COMPLETED);
  const auto id = Submit(kConversion);
  run = Start(agent);
  agent.Events(run, 0, 1, {ProgressEvent(40), FactsEvent(Facts("one"))});
  EXPECT_EQ(Set("shapes")["dataset"]["progress"]["done"], "40");
  EXPECT_EQ(Set("shapes")["dataset"]["made_by"], "0") << "it is there all the while";
  EXPECT_TRUE(Set("shapes")["facts"].contains("contents"));
  EXPECT_FALSE(Set("others")["facts"].contains("contents"));
  agent.Phase(run, v1::RUN_PHASE_GONE, {MakeExit(0, 0)});
  WaitFor(id, v1::JOB_STATE_COMPLETED);
  EXPECT_FALSE(Set("shapes")["dataset"].contains("progress"));
}

TEST_F(DatasetFactsTest, PicturesHaveAddressesThatNeverStandForAnother) {
  Register("shapes", "/data/out");
  ASSERT_TRUE(Report("shapes", "/data/out", Facts("one")).ok());
  const std::string first = Set("shapes")["facts"]["contents"]["time_us"];
  const auto picture = [&](const std::string& time, int number) {
    return Ask(fmt::format("/shapes/samples/{}/{}", time, number));
  };
  EXPECT_EQ(picture(first, 0).body, "\xFF\xD8\xFFone");
  EXPECT_THAT(picture(first, 0).head, HasSubstr("Content-Type: image/jpeg\r\n"));
  EXPECT_THAT(picture(first, 0).head, HasSubstr("immutable"));
  EXPECT_EQ(picture(first, 1).status, 404) << "that is no picture";
  EXPECT_EQ(picture(first, 2).status, 404);
  EXPECT_EQ(picture(first, -1).status, 404);
  EXPECT_EQ(picture("0", 0).status, 400) << "the newest is another tomorrow";
  EXPECT_EQ(picture("x", 0).status, 400);
  EXPECT_EQ(Ask("/nothing/samples/1/0").status, 404);
  ASSERT_TRUE(Report("shapes", "/data/out", Facts("two")).ok());
  const std::string second = Set("shapes")["facts"]["contents"]["time_us"];
  EXPECT_EQ(picture(first, 0).status, 404) << "it is gone";
  EXPECT_EQ(picture(second, 0).body, "\xFF\xD8\xFFtwo");
}

TEST_F(DatasetFactsTest, WhatIsToldIsOfTheAddressAndGoesWithIt) {
  Register("shapes", "/data/out");
  EXPECT_EQ(Report("nothing", "/data/out", Facts("one")).error_code(), grpc::StatusCode::NOT_FOUND);
  const auto refused = Report("shapes", "/data/other", Facts("one"));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(),
              HasSubstr("'shapes' stands for /data/out, and /data/other was looked at"));
  EXPECT_EQ(Report("shapes", "/data/out", {}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ASSERT_TRUE(Report("shapes", "/data/out", Facts("one")).ok());
  EXPECT_EQ(Set("shapes")["facts"]["verification"]["told_by"], "ada");
  v1::DatasetFacts again;
  again.mutable_verification()->set_images(240);
  ASSERT_TRUE(Report("shapes", "/data/out", again).ok());
  EXPECT_EQ(Set("shapes")["dataset"]["broken"], "0");
  EXPECT_TRUE(Set("shapes")["facts"].contains("contents")) << "what was not told anew stays";
  Register("shapes", "/data/out");
  EXPECT_NE(Set("shapes")["dataset"]["verified_us"], "0") << "it is the same set";
  Register("shapes", "/data/other", /*replace=*/true);
  EXPECT_EQ(Set("shapes")["dataset"]["verified_us"], "0");
  EXPECT_EQ(Set("shapes")["facts"], Json::object()) << "nobody has looked at that one";
}

TEST_F(DatasetFactsTest, MoreThanIsKeptIsLeftOut) {
  Register("shapes", "/data/out");
  auto facts = Facts("one");
  auto& contents = *facts.mutable_contents();
  for (int i = 0; i < kMostDatasetClasses + 5; ++i) contents.mutable_parts(0)->add_classes()->set_name("c");
  for (int i = 0; i < kMostDatasetSamples + 5; ++i) contents.add_samples();
  contents.mutable_samples(0)->set_picture("\xFF\xD8\xFF" + std::string(kMostSamplePictureBytes, 'x'));
  std::string umlauts;
  for (int i = 0; i < 200; ++i) umlauts += "\xC3\xA4";
  contents.mutable_samples(0)->set_class_name("x" + umlauts);
  for (int i = 0; i < kMostDatasetFindings + 5; ++i) facts.mutable_verification()->add_findings();
  ASSERT_TRUE(Report("shapes", "/data/out", facts).ok());
  const Json told = Set("shapes")["facts"];
  EXPECT_THAT(told["contents"]["parts"][0]["classes"], SizeIs(kMostDatasetClasses));
  EXPECT_THAT(told["contents"]["samples"], SizeIs(kMostDatasetSamples));
  EXPECT_THAT(told["verification"]["findings"], SizeIs(kMostDatasetFindings));
  EXPECT_EQ(told["contents"]["samples"][0]["class_name"], "x" + umlauts.substr(0, kMostDatasetNameBytes - 2))
      << "cut between two characters";
  const std::string time = told["contents"]["time_us"];
  EXPECT_EQ(Ask(fmt::format("/shapes/samples/{}/0", time)).status, 404) << "it was too large";
}

}  // namespace
}  // namespace imgd
