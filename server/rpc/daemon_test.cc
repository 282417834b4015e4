
#include <thread>

#include "server/rpc/testing/rpc_fixture.h"

namespace imgd {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

TEST_F(RpcTest, TheDescriptorOfEachServiceIsThere) {
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  for (const char* service : {"grpc.health.v1.Health", "imgd.v1.JobService", "imgd.v1.NodeService"}) {
    EXPECT_NE(pool->FindFileContainingSymbol(service), nullptr) << service;
  }
  EXPECT_EQ(Health(), "SERVING");
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

TEST_F(RpcTest, AnAddressOfNoInterfaceMayComeUpLater) {
  ServerConfig other = config;
  other.state_dir = folder.string() + "-other";
  other.listen = "192.0.2.1:0";  // RFC 5737: nobody's
  const auto refused = Daemon::Start(other, &clock, {});
  std::filesystem::remove_all(other.state_dir);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "cannot listen on 192.0.2.1:0: it is no address of this machine");
  EXPECT_EQ(ExitCodeOf(refused.error().code), 4) << "2, of bad input, is not tried again by systemd";
}

TEST_F(RpcTest, ASecondDaemonOnTheFolderIsRefused) {
  const auto refused = Daemon::Start(config, &clock, {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("another imgd uses"));
  EXPECT_EQ(ExitCodeOf(refused.error().code), 5);
}

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
    EXPECT_THAT(Get(kept).warning(), HasSubstr("can't store anything"));
    EXPECT_THAT(List().warning(), HasSubstr((folder / "state.db").native()));
    EXPECT_THAT(Nodes().warning(), HasSubstr("can't store anything"));
    EXPECT_EQ(Health(), "NOT_SERVING");
  }
  while (!Nodes().warning().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(List().warning(), "");
  EXPECT_EQ(Health(), "SERVING") << "nobody had to write for it";
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
  for (const char* listen :
       {"127.0.0.1:99999", "127.0.0.1:", "127.0.0.1", ":7650", "localhost:http", "h:-1"}) {
    ServerConfig bad;
    bad.listen = listen;
    const auto checked = CheckServerConfig(bad);
    ASSERT_FALSE(checked.has_value()) << listen;
    EXPECT_THAT(checked.error().message, HasSubstr("a port of 0 to 65535"));
  }
  EXPECT_TRUE(CheckServerConfig({.listen = "[::1]:0"}).has_value());
}

TEST(Config, LogPatternsAreReadAndFlagsKeepThem) {
  const auto config = ParseServerConfig(
      "set_aside_after: 5\nmost_clock_skew: 2s\nbuilt_in_log_patterns: false\n"
      "log_patterns:\n  - {name: licence, match: 'server .* refused', action: retry, label: busy}\n"
      "  - {name: cuda-oom, action: ignore}\n",
      "imgd.yaml");
  ASSERT_TRUE(config.has_value()) << config.error().front().ToString();
  ASSERT_EQ(config->log_patterns.size(), 2u);
  EXPECT_EQ(config->log_patterns[0].match, "server .* refused");
  EXPECT_EQ(config->log_patterns[0].action, PatternAction::kRetry);
  EXPECT_EQ(config->log_patterns[0].label, "busy");
  EXPECT_TRUE(config->log_patterns[1].ignored);
  EXPECT_FALSE(config->built_in_log_patterns);
  EXPECT_EQ(config->set_aside_after, 5);
  EXPECT_EQ(config->most_clock_skew_ms, 2000);
  const auto with_flags = ParseServerConfig("log_level: warn\n", "command line", *config);
  ASSERT_TRUE(with_flags.has_value());
  EXPECT_EQ(with_flags->log_patterns.size(), 2u);
  EXPECT_FALSE(with_flags->built_in_log_patterns);
}

TEST(Config, ALogPatternThatCannotBeUsedIsNamedWithItsPlace) {
  const auto wrong = ParseServerConfig(
      "log_patterns:\n  - {name: a, match: '(x'}\n  - {name: b}\n  - {match: x}\n  - {name: c, match: x, "
      "action: kill}\n"
      "  - {name: d, match: x}\n  - {name: d, match: y}\n",
      "imgd.yaml");
  ASSERT_FALSE(wrong.has_value());
  std::string all;
  for (const auto& error : wrong.error()) all += error.ToString() + "\n";
  EXPECT_THAT(all, HasSubstr("imgd.yaml:2:"));
  EXPECT_THAT(all, HasSubstr("found '(x', which can't be used: missing )"));
  EXPECT_THAT(all, HasSubstr("found no regular expression for 'b', which is not built in"));
  EXPECT_THAT(all, HasSubstr("found no name of 1 to 64 bytes"));
  EXPECT_THAT(all, HasSubstr("'kill'"));
  EXPECT_THAT(all, HasSubstr("found 'd' a second time"));
}

TEST(Config, QuotasAreForAllAndByName) {
  const auto config = ParseServerConfig(
      "preemption: false\nfair_share_half_life: 0\naging: 2d\nshares: {users: {ada: 2}, projects: {vision: "
      "0.5}}\nquotas:\n  user: {devices: 8, queued: 100}\n  users: "
      "{ada: {devices: 16}}\n"
      "  projects: {vision: {queued: 5}}\n",
      "imgd.yaml");
  ASSERT_TRUE(config.has_value());
  EXPECT_FALSE(config->preemption);
  EXPECT_EQ(config->fair_share_half_life_ms, 0);
  EXPECT_EQ(config->aging_ms, 2 * 24 * 3600 * 1000);
  EXPECT_EQ(config->shares, (Shares{.users = {{"ada", 2}}, .projects = {{"vision", 0.5}}}));
  EXPECT_FALSE(ParseServerConfig("shares: {users: {ada: 0}}\n", "imgd.yaml").has_value());
  EXPECT_EQ(config->quotas, (Quotas{.user = {.devices = 8, .queued = 100},
                                    .users = {{"ada", {.devices = 16}}},
                                    .projects = {{"vision", {.queued = 5}}}}));
  EXPECT_EQ(ParseServerConfig("log_level: warn\n", "command line", *config)->quotas, config->quotas);
  const auto wrong = ParseServerConfig("quotas: {users: {ada: {devices: 0, gpus: 1}}}\n", "imgd.yaml");
  ASSERT_FALSE(wrong.has_value());
  ASSERT_THAT(wrong.error(), SizeIs(2));
  EXPECT_THAT(wrong.error()[0].message, HasSubstr("quotas.users.ada.devices"));
}

TEST(Config, AKeyThatIsNoneIsAnsweredWithAllThatAre) {
  const auto hint = [](const std::string& text) {
    const auto wrong = ParseServerConfig(text, "imgd.yaml");
    return wrong ? "" : wrong.error().front().ToString();
  };
  EXPECT_EQ(
      hint("quotas: {user: {gpus: 4}}\n"),
      "imgd.yaml:1:17: quotas.user.gpus: unknown key (allowed here: device_hours, devices, queued, spend)");
  EXPECT_THAT(hint("zzzzzz: 4\n"),
              AllOf(HasSubstr("quotas"), HasSubstr("shares"), HasSubstr("tls"), HasSubstr("log_patterns")));
}

TEST(Config, HowLongThingsAreKeptHasItsUnit) {
  EXPECT_TRUE(ParseServerConfig("jobs_kept_for: 0\nlogs_kept_for: 30d\nheartbeat: 2\n", "imgd.yaml"));
  for (const char* key : {"checkpoints", "logs", "metrics", "jobs", "events", "lost_nodes"}) {
    const auto wrong = ParseServerConfig(fmt::format("{}_kept_for: 30\n", key), "imgd.yaml");
    ASSERT_FALSE(wrong) << key << ": seconds where days were meant would remove nearly all";
    EXPECT_THAT(wrong.error().front().ToString(), HasSubstr("found '30' where a duration with its unit"));
  }
}

TEST(Config, QuotasOfWhatIsUsedHaveAPeriod) {
  const auto config = ParseServerConfig(
      "currency: EUR\nquotas:\n  user: {device_hours: {most: 100}, spend: {most: 12.5, per: day}}\n"
      "  projects: {vision: {spend: {most: 9, per: total}, device_hours: {most: 1, per: week}}}\n",
      "imgd.yaml");
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->currency, "EUR");
  EXPECT_EQ(
      config->quotas,
      (Quotas{.user = {.device_hours = {.most = 100}, .spend = {.most = 12.5, .per = Period::kDay}},
              .projects = {{"vision", {.device_hours = {1, Period::kWeek}, .spend = {9, Period::kTotal}}}}}));
  const auto wrong =
      ParseServerConfig("quotas: {user: {spend: {per: year}, device_hours: {most: -1}}}\n", "imgd.yaml");
  ASSERT_FALSE(wrong.has_value());
  std::string all;
  for (const auto& error : wrong.error()) all += error.ToString() + "\n";
  EXPECT_THAT(all, HasSubstr("quotas.user.spend.most"));
  EXPECT_THAT(all, HasSubstr("'year'"));
  EXPECT_THAT(all, HasSubstr("quotas.user.device_hours.most"));
}

TEST_F(RpcTest, AJobTellsItsProject) {
  EXPECT_EQ(Get(Submit(std::string(kJob) + "project: vision\n")).job().project(), "vision");
  EXPECT_EQ(Get(Submit(kJob)).job().project(), "");
}

TEST_F(RpcTest, ASubmitAboveTheQuotaIsRefusedInWords) {
  daemon.reset();
  config.quotas.user.queued = 1;
  StartDaemon();
  v1::SubmitJobResponse response;
  ASSERT_TRUE(Submit(kJob, response).ok());
  const auto refused = Submit(kJob, response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << "imgd is not at fault";
  EXPECT_THAT(refused.error_message(), HasSubstr("has as many jobs waiting as the quota allows, 1"));
}

TEST(Config, PlainHttpStaysOnTheMachine) {
  const auto checked = [](const std::string& yaml) -> std::string {
    const auto config = ParseServerConfig(yaml, "imgd.yaml");
    if (!config) return config.error().front().message;
    const auto status = CheckServerConfig(*config);
    return status ? "" : status.error().message;
  };
  EXPECT_EQ(checked("web: {listen: '0.0.0.0:7651'}\n"), "");
  EXPECT_EQ(checked("web: {listen: ''}\n"), "");
  EXPECT_EQ(checked("web: {listen: '[::1]:0', plain_http: true}\n"), "");
  EXPECT_EQ(checked("web: {listen: 'localhost:0', plain_http: true}\n"), "");
  EXPECT_THAT(checked("web: {listen: '0.0.0.0:1', plain_http: true}\n"), HasSubstr("no loopback address"));
  EXPECT_THAT(checked("web: {listen: '127.example:1', plain_http: true}\n"),
              HasSubstr("no loopback address"));
  EXPECT_THAT(checked("web: {certificate: /c, plain_http: true, key: /k}\n"),
              HasSubstr("exclude each other"));
  EXPECT_THAT(checked("web: {certificate: /c}\n"), HasSubstr("a certificate is named without a key"));
  EXPECT_THAT(checked("web: {listen: '7651'}\n"), HasSubstr("HOST:PORT is expected"));
  EXPECT_THAT(checked("web: {lsten: 'x'}\n"), HasSubstr("unknown key"));
  EXPECT_THAT(checked("report_timeout: 10ms\n"), HasSubstr("at least 1 s"));
}

}  // namespace
}  // namespace imgd
