#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/testing/fake_daemon.h"
#include "cli/testing/run_cli.h"
#include "cli/testing/scripted_screen.h"

namespace imgd::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

class Top : public testing::Test {
 protected:
  Top() {
    daemon_.PutJob(MakeJob(12, "rn18-demo", v1::JOB_STATE_RUNNING));
    daemon_.PutJob(MakeJob(13, "later", v1::JOB_STATE_QUEUED));
    v1::Node node;
    node.set_name("gpu-1");
    node.set_state(v1::NODE_STATE_READY);
    node.add_devices()->set_job_id(12);
    daemon_.PutNode(node);
  }

  CliResult OnScreen(std::vector<ScriptedScreen::Step> steps) {
    auto call = CallTo(daemon_.address(), {"top"});
    call.terminal = {.is_terminal = true};
    call.open_screen = [&steps] { return std::make_unique<ScriptedScreen>(std::move(steps)); };
    return RunCli(std::move(call));
  }

  FakeDaemon daemon_;
};

TEST_F(Top, OpensAJobAndGoesBack) {
  v1::JobEvent event = StepEvent(188, 400);
  daemon_.AddEvent(12, event);
  daemon_.AddLine(12, Line(0, 1, "hello from rank 0"));
  const auto done = OnScreen({{.text = "1 running, 1 queued   812 images/s", .keys = "\r"},
                              {.text = "hello from rank 0", .keys = "q"},
                              {.text = "1 running, 1 queued", .keys = "q"}});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(done.out + done.err, "");
}

TEST_F(Top, CancelsWhenThatIsConfirmed) {
  EXPECT_EQ(OnScreen({{.text = "rn18-demo", .keys = "c"},
                      {.text = "cancel job 12 (rn18-demo)?", .keys = "n"},
                      {.text = "? help", .keys = "jc"},
                      {.text = "cancel job 13 (later)?", .keys = "s"},
                      {.text = "job 13 (later) is being cancelled, after a checkpoint", .keys = "q"}})
                .exit_code,
            0);
  ASSERT_THAT(daemon_.cancels(), SizeIs(1));
  EXPECT_EQ(daemon_.cancels()[0].id(), 13u);
  EXPECT_EQ(daemon_.cancels()[0].actor(), "lena");
  EXPECT_TRUE(daemon_.cancels()[0].checkpoint());
}

TEST_F(Top, GoesOnAfterARestartAndSaysSo) {
  EXPECT_EQ(OnScreen({{.text = "rn18-demo", .action = [this] { daemon_.Stop(); }},
                      {.text = "imgd has not answered since", .action = [this] { daemon_.Start(); }},
                      {.text = "imgd is back", .keys = "q"}})
                .exit_code,
            0);
}

TEST_F(Top, ANewSizeIsANewPicture) {
  EXPECT_EQ(OnScreen({{.text = "rn18-demo", .size = {.columns = 60, .lines = 20}},
                      {.text = "imgcli top needs 80x24;", .size = {.columns = 120, .lines = 40}},
                      {.text = "rn18-demo", .keys = "q"}})
                .exit_code,
            0);
}

TEST_F(Top, WhereThereIsNoScreenItPrintsOnce) {
  const auto once = RunCli(CallTo(daemon_.address(), {"top"}));
  EXPECT_EQ(once.exit_code, 0);
  EXPECT_THAT(once.out, AllOf(HasSubstr("1 running, 1 queued"), HasSubstr("gpu-1"), HasSubstr("rn18-demo"),
                              Not(HasSubstr("\x1b")), Not(HasSubstr("? help"))));
  auto on_terminal = CallTo(daemon_.address(), {"top", "--once"});
  on_terminal.terminal = {.is_terminal = true};
  on_terminal.open_screen = []() -> std::unique_ptr<Screen> {
    ADD_FAILURE() << "--once takes no screen";
    return nullptr;
  };
  EXPECT_THAT(RunCli(on_terminal).out, HasSubstr("rn18-demo"));
}

TEST_F(Top, JsonHasNodesJobsAndSums) {
  const auto done = RunCli(CallTo(daemon_.address(), {"top", "-o", "json"}));
  const auto document = nlohmann::json::parse(done.out);
  EXPECT_EQ(document["totals"]["devices_allocated"], 1);
  EXPECT_EQ(document["totals"]["jobs_queued"], 1);
  EXPECT_EQ(document["nodes"][0]["name"], "gpu-1");
  EXPECT_EQ(document["jobs"][0]["id"], "12");
}

TEST_F(Top, WithoutADaemonItEndsAsOthersDo) {
  daemon_.Stop();
  EXPECT_EQ(RunCli(CallTo(daemon_.address(), {"top"})).exit_code, 4);
}

}  // namespace
}  // namespace imgd::cli
