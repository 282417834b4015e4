// /metrics of a node with real runs, and the server that answers.
#include "agent/exporter.h"

#include <fstream>

#include "agent/network.h"
#include "agent/testing/loopback_client.h"
#include "agent/testing/node.h"
#include "agent/testing/step_events.h"

namespace imgd {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// --- runs ---

/// A node whose trainers report what the test writes.
class ExporterTest : public testing::Test {
 protected:
  void SetUp() override {
    node_.Trainer("echo ready; exec sleep 607");
    node_.Begin();
    Serve();
  }

  void Serve() {
    exporter_ =
        std::move(*Exporter::Create(&node_.loop(), "127.0.0.1:0", &node_.supervisor(), {}, nullptr, "/"));
  }

  void StartRun(uint32_t ranks) {
    node_.Start(7, 1, ranks);
    ASSERT_TRUE(node_.UntilPhase(7, 1, v1::RUN_PHASE_RUNNING));
  }

  void Report(uint32_t local_rank, uint64_t sequence, double images) {
    std::ofstream(RunDir{node_.RunPath(7, 1)}.Events(local_rank), std::ios::binary | std::ios::app)
        << EventFrame(StepEvent(sequence, sequence * 10, images, 2));
  }

  /// Images trained on by the run that is shown; -1 if there isn't exactly one.
  double Images() const {
    const auto shown = exporter_->Snapshot();
    if (shown.runs.size() != 1) return -1;
    double sum = 0;
    for (const auto& rank : shown.runs[0].ranks) sum += rank.images;
    return sum;
  }
  bool UntilImages(double images) {
    return node_.Until([&] { return Images() == images; });
  }

  std::string Scrape() {
    LoopbackClient client(exporter_->port());
    client.Send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_TRUE(node_.Until([&] { return client.Take(); }));
    return client.received();
  }

  TestNode node_;
  std::unique_ptr<Exporter> exporter_;
};

TEST_F(ExporterTest, ALiveRunIsShownAndAnEndedOneIsNot) {
  EXPECT_THAT(Scrape(), Not(HasSubstr("imgd_job")));
  StartRun(2);
  ASSERT_TRUE(UntilImages(0)) << "from its start on, so that the first images are an increase";
  EXPECT_EQ(exporter_->Snapshot().runs[0].running_ranks, 2);
  Report(0, 1, 640);
  Report(1, 1, 64);
  ASSERT_TRUE(UntilImages(704));
  auto shown = exporter_->Snapshot();
  EXPECT_FALSE(shown.runs[0].has_rank_0) << "it has ranks 1 and 2 of 3";
  EXPECT_EQ(shown.runs[0].ranks_elsewhere, 1);
  const auto text = Scrape();
  EXPECT_THAT(text, AllOf(HasSubstr("imgd_node_ranks 2\n"), Not(HasSubstr("imgd_job"))));
  shown.runs[0].has_rank_0 = true;
  EXPECT_THAT(ToMetricsText(shown),
              AllOf(HasSubstr("imgd_job_ranks{cluster=\"\",job_id=\"7\",generation=\"1\"} 3"),
                    HasSubstr("stage=\"decode\"} 6")));
  node_.acknowledge = false;  // so that its folder stays
  node_.Stop(7, 1, 200);
  ASSERT_TRUE(node_.UntilGone(7, 1));
  EXPECT_THAT(exporter_->Snapshot().runs, IsEmpty()) << "at once";
  EXPECT_THAT(Scrape(), HasSubstr("imgd_node_ranks 0\n"));
}

TEST_F(ExporterTest, TellsWhereOthersFindIt) {
  struct Case {
    const char* listen;
    const char* node;
    std::string found;
  };
  for (const auto& [listen, node, found] :
       {Case{"127.0.0.1:0", "127.0.0.1", "127.0.0.1:PORT"}, Case{"127.0.0.1:0", "10.0.0.5", ""},
        Case{"0.0.0.0:0", "10.0.0.5", "10.0.0.5:PORT"}, Case{"[::]:0", "fd00::5", "[fd00::5]:PORT"}}) {
    auto made = Exporter::Create(&node_.loop(), listen, &node_.supervisor(), {}, nullptr, "/");
    if (!made) continue;  // a machine without IPv6
    std::string expected = found;
    if (const auto at = expected.find("PORT"); at != std::string::npos)
      expected.replace(at, 4, std::to_string((*made)->port()));
    EXPECT_EQ((*made)->AddressFor(node), expected) << listen << ", node at " << node;
  }
}

TEST_F(ExporterTest, GoesOnWithoutTheDaemon) {
  StartRun(1);
  Report(0, 1, 64);
  ASSERT_TRUE(UntilImages(64));
  node_.Disconnect();
  Report(0, 2, 64);
  EXPECT_TRUE(UntilImages(128));
  node_.Connect();  // the daemon gets the events again from where it was; nothing is counted twice
  Report(0, 3, 64);
  EXPECT_TRUE(UntilImages(192));
}

TEST_F(ExporterTest, AnotherAgentProcessGoesOnAtTheSameSums) {
  StartRun(1);
  Report(0, 1, 64);
  Report(0, 2, 64);
  ASSERT_TRUE(UntilImages(128));
  exporter_.reset();
  node_.Begin();
  Serve();
  EXPECT_TRUE(Images() == -1 || Images() == 128) << "never less, which would look like new images later";
  ASSERT_TRUE(UntilImages(128));
  Report(0, 3, 64);
  EXPECT_TRUE(UntilImages(192));
}

// --- the server ---

class MetricsServerTest : public testing::Test {
 protected:
  MetricsServerTest() : loop_(std::move(*EventLoop::Create())) {
    server_ = std::move(*MetricsServer::Listen(loop_.get(), "127.0.0.1:0", [this] { return text_; }));
  }

  bool Until(const std::function<bool()>& done) { return RunUntil(*loop_, done); }

  std::string Ask(std::string_view request) {
    LoopbackClient client(server_->port());
    client.Send(request);
    EXPECT_TRUE(Until([&] { return client.Take(); })) << client.received();
    return client.received();
  }

  std::string text_ = "some_metric 1\n";
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, AnswersWhatPrometheusAsks) {
  const auto answer = Ask("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: text/plain\r\n\r\n");
  EXPECT_EQ(
      answer,
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: 14\r\n"
      "Connection: close\r\n\r\nsome_metric 1\n");
  EXPECT_THAT(Ask("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), EndsWith("some_metric 1\n"));
  const auto head = Ask("HEAD /metrics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("Content-Length: 14\r\n"));
  EXPECT_THAT(head, EndsWith("\r\n\r\n"));
}

TEST_F(MetricsServerTest, RefusesTheRestInWords) {
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask("GET /metricsx HTTP/1.1\r\n\r\n"), EndsWith("imgagent has /metrics and nothing else\n"));
  EXPECT_THAT(Ask("POST /metrics HTTP/1.1\r\n\r\n"), HasSubstr("405 Method Not Allowed\r\n"));
  EXPECT_THAT(Ask("POST /metrics HTTP/1.1\r\n\r\n"), HasSubstr("\r\nAllow: GET, HEAD\r\n"));
  for (const auto* nonsense :
       {"\r\n\r\n", "GET\r\n\r\n", "GET /metrics\r\n\r\n", "\x16\x03\x01 x y\r\n\r\n"}) {
    EXPECT_THAT(Ask(nonsense), StartsWith("HTTP/1.1 400 ")) << nonsense;
  }
  EXPECT_THAT(Ask("GET /metrics HTTP/1.1\r\nX: " + std::string(9000, 'x')), StartsWith("HTTP/1.1 431 "));
}

TEST_F(MetricsServerTest, SlowClientsHoldNobodyUpAndAreBounded) {
  std::vector<std::unique_ptr<LoopbackClient>> slow;
  for (int i = 0; i < 31; ++i) {
    slow.push_back(std::make_unique<LoopbackClient>(server_->port()));
    slow.back()->Send("GET /met");
  }
  ASSERT_TRUE(Until([&] { return server_->connections() == 31; }));
  EXPECT_THAT(Ask("GET /metrics HTTP/1.1\r\n\r\n"), EndsWith("some_metric 1\n"));
  ASSERT_TRUE(Until([&] { return server_->connections() == 31; }));
  slow.push_back(std::make_unique<LoopbackClient>(server_->port()));
  ASSERT_TRUE(Until([&] { return server_->connections() == 32; }));
  EXPECT_EQ(Ask(""), "") << "one too many is closed at once";
  slow[0]->Send("rics HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(Until([&] { return slow[0]->Take(); }));
  EXPECT_THAT(slow[0]->received(), EndsWith("some_metric 1\n"));
  slow.clear();
  EXPECT_TRUE(Until([&] { return server_->connections() == 0; }));
}

TEST_F(MetricsServerTest, AGreatAnswerReachesASlowReaderWhole) {
  text_ = std::string(8 << 20, 'x') + "\n";
  LoopbackClient client(server_->port());
  client.Send("GET /metrics HTTP/1.1\r\n\r\n");
  client.Send("and some more that nobody asked for");
  ASSERT_TRUE(Until([&] { return client.Take(1 << 20); }));
  const auto& answer = client.received();
  const auto body_at = answer.find("\r\n\r\n") + 4;
  EXPECT_EQ(answer.size() - body_at, text_.size());
  EXPECT_TRUE(answer.ends_with("x\n"));
}

TEST_F(MetricsServerTest, APortThatIsTakenIsNamed) {
  const auto address = fmt::format("127.0.0.1:{}", server_->port());
  const auto second = MetricsServer::Listen(loop_.get(), address, [] { return ""; });
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(
      second.error().message,
      fmt::format("metrics: cannot listen on port {} of 127.0.0.1: the port is in use by another program",
                  server_->port()));
}

TEST_F(MetricsServerTest, ClosedConnectionsOfAnEarlierProcessDontHoldThePort) {
  const auto address = fmt::format("127.0.0.1:{}", server_->port());
  for (int i = 0; i < 2; ++i) {
    server_.reset();
    auto next = MetricsServer::Listen(loop_.get(), address, [] { return "again 1\n"; });
    ASSERT_TRUE(next.has_value()) << next.error().message;
    server_ = std::move(*next);
    EXPECT_THAT(Ask("GET /metrics HTTP/1.1\r\n\r\n"), EndsWith("again 1\n"));
  }
}

}  // namespace
}  // namespace imgd
