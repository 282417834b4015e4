// What imgd shows to Prometheus of itself and its cluster.
#include "server/web/metrics_page.h"

#include <stdlib.h>

#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "common/files.h"
#include "imgd/v1/token.grpc.pb.h"
#include "server/rpc/testing/rpc_fixture.h"
#include "server/web/testing/http_client.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Something of everything.
EngineFigures FullFigures() {
  EngineMeters meters;
  meters.NoteCommit(std::chrono::milliseconds(2));
  meters.NoteScheduling(std::chrono::microseconds(50));
  meters.OnEvent({.job = JobId(1),
                  .from = JobState::kRunning,
                  .to = JobState::kQueued,
                  .reason = {ReasonCode::kNodeLost, ""}});
  EngineFigures figures{
      .census = TakeCensus(ClusterState()), .counts = meters.Counts({}, {}), .currency = "USD"};
  figures.census.gpus = {.allocated = 5, .idle = 2, .set_aside = 1};
  return figures;
}

std::vector<prometheus::MetricFamily> AllFamilies() {
  MetricFamilies families;
  web::AddFigures(FullFigures(), families);
  web::AddNotifications({{"chat", {.sent = 3, .pending = 1}}, {"ops", {.failed_tries = 2, .given_up = 1}}},
                        families);
  CallTimes calls;
  calls.NoteCall("/imgd.v1.JobService/GetJob", 5, std::chrono::milliseconds(3));
  calls.NoteCall("/grpc.health.v1.Health/Check", 0, std::chrono::milliseconds(3));
  calls.NoteStreamBegun("/imgd.v1.AgentService/Connect");
  calls.NoteStreamEnded("/imgd.v1.AgentService/Connect", 1);
  calls.AddTo(families);
  return families.Take();
}

TEST(MetricsPage, KeepsToTheRules) {
  std::set<std::string> names;
  size_t series = 0;
  for (const auto& family : AllFamilies()) {
    EXPECT_THAT(family.name, testing::MatchesRegex("imgd_[a-z_]+"));
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_EQ(family.name.ends_with("_total"), family.type == prometheus::MetricType::Counter) << family.name;
    EXPECT_EQ(family.name.ends_with("_seconds"), family.type == prometheus::MetricType::Histogram)
        << family.name;
    EXPECT_NE(family.help, "");
    std::set<std::vector<prometheus::ClientMetric::Label>> seen;
    for (const auto& metric : family.metric) {
      EXPECT_TRUE(seen.insert(metric.label).second) << family.name << ": the same labels twice";
      series += 1 + metric.histogram.bucket.size();
      for (const auto& label : metric.label)
        EXPECT_TRUE(label.name != "job" && label.name != "instance") << "Prometheus' own";
    }
  }
  EXPECT_LT(series, 200u);
}

TEST(MetricsPage, PromtoolFindsNothingToComplainOf) {
  if (::system("promtool --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "promtool is not installed";
  const auto base = std::filesystem::path(testing::TempDir()) / fmt::format("imgd_metrics_{}", ::getpid());
  const std::string file = base.native() + ".txt", said = base.native() + ".said";
  std::ofstream(file) << MetricsText(AllFamilies());
  EXPECT_EQ(::system(fmt::format("promtool check metrics <{} >{} 2>&1", file, said).c_str()), 0);
  EXPECT_EQ(ReadFile(said).value_or("?"), "");
  std::filesystem::remove(file);
  std::filesystem::remove(said);
}

TEST(CallTimes, HaveNoLabelsThatACallerMakesUp) {
  CallTimes calls;
  for (const auto* method : {"/imgd.v1.JobService/Nonsense", "/x", "", "/grpc.health.v1.Health/Check"})
    calls.NoteCall(method, 12, std::chrono::milliseconds(1));
  calls.NoteCall("/imgd.v1.JobService/GetJob", 99, std::chrono::milliseconds(1));
  MetricFamilies families;
  calls.AddTo(families);
  std::vector<std::string> labels;
  for (const auto& family : families.Take()) {
    for (const auto& metric : family.metric)
      labels.push_back(metric.label[0].value + " " + metric.label[1].value);
  }
  EXPECT_THAT(labels, ElementsAre("JobService.GetJob UNKNOWN", "other UNIMPLEMENTED"));
}

/// A daemon that serves plain HTTP on the loopback, where nobody has made a token.
struct MetricsPageTest : RpcTest {
  void SetUp() override {
    RpcTest::SetUp();
    if (HasFatalFailure()) return;
    daemon.reset();
    config.web.listen = "127.0.0.1:0";
    config.web.plain_http = true;
    StartDaemon();
  }
  web::TestAnswer Ask(const std::string& path) {
    web::TestConnection connection(daemon->web_port());
    return connection.Ask("GET", path, "", "").value_or(web::TestAnswer{});
  }
};

/// A line of the page as it is for that cluster; comments have no labels.
std::string InCluster(const std::string& line, const std::string& cluster) {
  if (line.starts_with('#')) return line;
  const size_t brace = line.find('{');
  if (brace != std::string::npos) return line.substr(0, brace + 1) + cluster + "," + line.substr(brace + 1);
  const size_t space = line.find(' ');
  return line.substr(0, space) + "{" + cluster + "}" + line.substr(space);
}

TEST_F(MetricsPageTest, ShowsTheClusterAndTheCalls) {
  FakeAgent agent(channel, "a", 2);
  Submit(kGang);
  v1::GetJobRequest request;
  request.set_id(77);
  v1::GetJobResponse response;
  Context context;
  EXPECT_EQ(jobs->GetJob(&context, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Ask("/api/v1/jobs").status, 200);
  const auto page = Ask("/metrics");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.head, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  const std::string cluster = fmt::format("cluster=\"{}\"", agent.welcome().cluster_id());
  for (const std::string line :
       {"imgd_jobs{state=\"queued\"} 1\n", "imgd_jobs{state=\"running\"} 0\n", "imgd_jobs_held_back 0\n",
        "imgd_jobs_submitted_total 1\n", "imgd_agents{state=\"ready\"} 1\n", "imgd_nodes_lost_total 0\n",
        "imgd_devices{kind=\"cpu\",use=\"idle\"} 2\n", "imgd_devices{kind=\"gpu\",use=\"allocated\"} 0\n",
        "imgd_store_failing 0\n", "imgd_rpc_seconds_count{method=\"JobService.SubmitJob\",code=\"OK\"} 1\n",
        "imgd_rpc_seconds_count{method=\"JobService.GetJob\",code=\"NOT_FOUND\"} 1\n",
        "imgd_rpc_seconds_count{method=\"JobService.ListJobs\",code=\"OK\"} 1\n",
        "imgd_rpc_streams{method=\"AgentService.Connect\"} 1\n", "# TYPE imgd_commit_seconds histogram\n",
        "# TYPE imgd_queue_wait_seconds histogram\n", "# TYPE process_resident_memory_bytes gauge\n"})
    EXPECT_THAT(page.body, HasSubstr(InCluster(line, cluster)));
  EXPECT_THAT(page.body, Not(HasSubstr(InCluster("imgd_commit_seconds_count 0\n", cluster))));
  EXPECT_THAT(page.body, Not(HasSubstr(InCluster("imgd_scheduling_pass_seconds_count 0\n", cluster))));
  std::istringstream lines(page.body);
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(line.starts_with('#') || line.find("{" + cluster) != std::string::npos) << line;
}

TEST_F(MetricsPageTest, NeedsTheScopeViewWhereThereAreTokens) {
  EXPECT_EQ(Ask("/metrics").status, 200);
  EXPECT_EQ(Ask("/sd/prometheus").status, 200);
  v1::CreateTokenRequest request;
  request.add_scopes("view");
  v1::CreateTokenResponse response;
  Context context;
  ASSERT_TRUE(v1::TokenService::NewStub(channel)->CreateToken(&context, request, &response).ok());
  EXPECT_EQ(Ask("/metrics").status, 401);
  EXPECT_EQ(Ask("/sd/prometheus").status, 401);
  web::TestConnection connection(daemon->web_port());
  const auto answer =
      connection.Ask("GET", "/metrics", "", "Authorization: Bearer " + response.secret() + "\r\n");
  EXPECT_EQ(answer.value_or(web::TestAnswer{}).status, 200);
}

}  // namespace
}  // namespace imgd
