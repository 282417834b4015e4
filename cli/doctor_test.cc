#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>

#include "cli/doctor_checks.h"
#include "cli/testing/fake_daemon.h"
#include "cli/testing/run_cli.h"
#include "common/files.h"

namespace imgd::cli {
namespace {

using doctor::Grade;
using doctor::Reach;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

ClientFacts WellClient() {
  return {.version = "0.1.0",
          .address_source = "from IMGD_SERVER",
          .imgd = {.server = "head:7650", .addresses = {"10.0.0.1"}, .outcome = Reach::Outcome::kAnswers},
          .nodes = {{.name = "a", .agent_version = "0.1.0", .state = "ready", .devices = 8},
                    {.name = "b", .agent_version = "0.1.0", .state = "ready", .devices = 8}},
          .clock = {.is_kept = true, .ahead = std::chrono::milliseconds(-2)},
          .config_path = "/home/lena/.config/imgd/config.yaml"};
}

doctor::Verdict Of(const ClientFacts& facts, std::string_view check) {
  for (const auto& line : ExamineClient(facts)) {
    if (line.check == check) return line.verdict;
  }
  return doctor::Unknown("no such check");
}

TEST(ClientDoctor, WhereAllIsWellThereIsNothingToDo) {
  for (const auto& [check, verdict] : ExamineClient(WellClient())) {
    EXPECT_EQ(verdict.grade, Grade::kGood) << check << ": " << verdict.what;
    EXPECT_THAT(verdict.advice, IsEmpty()) << check;
  }
}

TEST(ClientDoctor, EachCauseIsNamedWithWhatToDo) {
  struct Case {
    const char* check;
    void (*cause)(ClientFacts&);
    Grade grade;
    const char* what;
    const char* advice;
  };
  const std::vector<Case> cases = {
      {"address", [](ClientFacts& f) { f.address_error = "IMGD_SERVER: found 'a b'"; }, Grade::kFault,
       "'a b'", "HOST:PORT"},
      {"config-file", [](ClientFacts& f) { f.config_is_open = true; }, Grade::kWarning, "changed by others",
       "chmod go-w"},
      {"certificate", [](ClientFacts& f) { f.tls_error = "was not signed by the CA"; }, Grade::kFault,
       "not signed", "Who may talk"},
      {"certificate", [](ClientFacts& f) { f.tls = false; }, Grade::kWarning, "in plain text", "http://"},
      {"token", [](ClientFacts& f) { f.has_token = false; }, Grade::kWarning, "no token", "imgcli login"},
      {"name", [](ClientFacts& f) { f.imgd.outcome = Reach::Outcome::kNoName; }, Grade::kFault, "resolved",
       "resolv.conf"},
      {"port", [](ClientFacts& f) { f.imgd.outcome = Reach::Outcome::kRefused; }, Grade::kFault,
       "nobody listens", "systemctl status imgd"},
      {"port", [](ClientFacts& f) { f.imgd.outcome = Reach::Outcome::kOtherWords; }, Grade::kFault,
       "not imgd's gRPC", "7650"},
      {"answer", [](ClientFacts& f) { f.answer_error = "no answer in 10 s"; }, Grade::kFault, "no answer",
       "journalctl"},
      {"imgd", [](ClientFacts& f) { f.warning = "the disk of /var/lib/imgd is full"; }, Grade::kFault,
       "is full", "journalctl"},
      {"nodes", [](ClientFacts& f) { f.nodes.clear(); }, Grade::kFault, "every job waits", "imgagent"},
      {"nodes-reached", [](ClientFacts& f) { f.nodes[1].is_reached = false; }, Grade::kWarning,
       "out of reach: b", "imgagent doctor"},
      {"nodes-well", [](ClientFacts& f) { f.nodes[0].problems = "has 0.2 GiB free"; }, Grade::kWarning,
       "a has 0.2 GiB free", "node show"},
      {"nodes-used", [](ClientFacts& f) { f.nodes[0].state = "cordoned"; }, Grade::kWarning, "asked: a",
       "uncordon"},
      {"nodes-clocks", [](ClientFacts& f) { f.nodes[1].clock_is_off = true; }, Grade::kWarning, "imgd's: b",
       "NTP"},
      {"versions", [](ClientFacts& f) { f.nodes[1].agent_version = "0.0.9"; }, Grade::kWarning, "not on: b",
       "upgrade"},
      {"clock", [](ClientFacts& f) { f.clock.is_kept = false; }, Grade::kWarning, "no NTP", "chrony"},
      {"clock", [](ClientFacts& f) { f.clock.ahead = std::chrono::hours(-1); }, Grade::kWarning,
       "3600.0 s behind imgd's clock", "certificates"},
  };
  std::set<std::string_view> told;
  for (const auto& [check, cause, grade, what, advice] : cases) {
    told.insert(check);
    auto facts = WellClient();
    cause(facts);
    const auto verdict = Of(facts, check);
    EXPECT_EQ(verdict.grade, grade) << check << ": " << verdict.what;
    EXPECT_THAT(verdict.what, HasSubstr(what)) << check;
    EXPECT_THAT(verdict.advice, HasSubstr(advice)) << check;
  }
  const std::string page = ReadFile(IMGD_INSTALL_PAGE).value();
  for (const auto& line : ExamineClient(WellClient())) {
    EXPECT_TRUE(told.contains(line.check)) << line.check << " has no cause that is tried";
    EXPECT_THAT(page, HasSubstr(fmt::format("`{}`", line.check))) << "in the list of docs/install.md";
  }
  EXPECT_EQ(cases.size(), 18U) << "docs/install.md says how many there are, of both doctors";
}

TEST(ClientDoctor, WithoutAnAnswerNothingIsSaidOfNodes) {
  auto facts = WellClient();
  facts.answer_error = "out of reach";
  facts.nodes.clear();
  for (const char* check :
       {"imgd", "nodes", "nodes-reached", "nodes-well", "nodes-used", "nodes-clocks", "versions"}) {
    EXPECT_EQ(Of(facts, check).grade, Grade::kUnknown) << check;
  }
}

TEST(ClientDoctor, AsksTheDaemonThatTheOtherCommandsAsk) {
  FakeDaemon daemon;
  v1::Node node;
  node.set_name("gpu-1");
  node.set_state(v1::NODE_STATE_READY);
  node.add_devices();
  auto& problem = *node.add_problems();
  problem.set_kind(v1::PROBLEM_KIND_CLOCK);
  problem.set_text("its clock is 20 s ahead");
  daemon.PutNode(node);
  const auto done = RunCli(CallTo(daemon.address(), {"doctor", "-o", "json"}));
  EXPECT_EQ(done.exit_code, 0) << done.out;
  EXPECT_THAT(done.out, AllOf(HasSubstr("gpu-1 its clock is 20 s ahead"), HasSubstr("from --server")));
  const auto report = nlohmann::json::parse(done.out);
  EXPECT_EQ(report["faults"], 0);

  daemon.Stop();
  const auto without = RunCli(CallTo(daemon.address(), {"--timeout", "1s", "doctor"}));
  EXPECT_EQ(without.exit_code, 6);
  EXPECT_THAT(without.out, HasSubstr("nobody listens on " + daemon.address()));
  EXPECT_THAT(without.err, IsEmpty());
}

}  // namespace
}  // namespace imgd::cli
