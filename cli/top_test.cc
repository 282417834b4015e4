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

  CliResult OnScreen(std::vector<ScriptedScreen::Step> steps, std::vector<std::string> arguments = {"top"}) {
    auto call = CallTo(daemon_.address(), std::move(arguments));
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

TEST_F(Top, AllThatWasConfirmedIsCancelledAlsoByOneWhoLeaves) {
  EXPECT_EQ(OnScreen({{.text = "rn18-demo", .keys = "cyjcyq"}}).exit_code, 0);
  const auto cancels = daemon_.cancels();
  ASSERT_THAT(cancels, SizeIs(2));
  EXPECT_EQ(cancels[0].id(), 12u);
  EXPECT_EQ(cancels[1].id(), 13u);
}

TEST_F(Top, WhoLeavesIsToldWhatMayNotHaveBeenCancelled) {
  const auto done = OnScreen({{.text = "rn18-demo", .keys = "cyq", .action = [this] { daemon_.Stop(); }}},
                             {"--timeout", "1s", "top"});
  EXPECT_EQ(done.exit_code, 4);
  EXPECT_THAT(done.err, AllOf(HasSubstr("job 12 may go on: "), HasSubstr("imgcli cancel 12 asks again")));
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

TEST_F(Top, WhatRunsIsThereHoweverLongTheQueue) {
  daemon_.AddEvent(12, StepEvent(188, 400));
  for (uint64_t id = 100; id < 1200; ++id) daemon_.PutJob(MakeJob(id, "sweep", v1::JOB_STATE_QUEUED));
  const auto done = RunCli(CallTo(daemon_.address(), {"top", "-o", "json"}));
  const auto document = nlohmann::json::parse(done.out);
  EXPECT_EQ(document["totals"]["jobs_running"], 1);
  EXPECT_EQ(document["totals"]["images_per_second"], 812);
  EXPECT_EQ(document["totals"]["jobs_queued"], 1000);
  EXPECT_EQ(document["totals"]["more_jobs"], true);
  EXPECT_EQ(document["jobs"][0]["id"], "12");
  EXPECT_THAT(RunCli(CallTo(daemon_.address(), {"top", "--once"})).out,
              HasSubstr("1 running, 1000+ queued   812 images/s"));
}

TEST_F(Top, WithoutADaemonItEndsAsOthersDo) {
  daemon_.Stop();
  EXPECT_EQ(RunCli(CallTo(daemon_.address(), {"top"})).exit_code, 4);
}

}  // namespace
}  // namespace imgd::cli
