#include "cli/watch.h"

#include <gmock/gmock.h>
#include <yaml-cpp/yaml.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "cli/format.h"
#include "cli/interrupt.h"
#include "cli/testing/fake_daemon.h"
#include "cli/testing/run_cli.h"
#include "cli/watch_view.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class Watch : public testing::Test {
 protected:
  Watch() { daemon_.PutJob(MakeJob(12, "rn18-demo", v1::JOB_STATE_RUNNING)); }

  void Finish(v1::JobState state, const std::string& text) {
    daemon_.AddEvent(12, StateEvent(v1::JOB_STATE_RUNNING, state, text));
  }

  void Validate() {
    v1::JobEvent event;
    event.mutable_epoch()->set_epoch(1);
    event.mutable_epoch()->set_total_epochs(2);
    event.mutable_epoch()->set_val_top1(0.924);
    event.mutable_epoch()->set_val_top5(0.998);
    daemon_.AddEvent(12, event);
  }

  FakeDaemon daemon_;
};

TEST_F(Watch, InAPipeEachEventIsALineAndTheEndIsTheLast) {
  CliProcess process(CallTo(daemon_.address(), {"watch", "12"}));
  daemon_.AwaitStreams(1);
  daemon_.AddEvent(12, StepEvent(100, 400));
  Validate();
  Finish(v1::JOB_STATE_COMPLETED, "trained to the last step");
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(
      Lines(process.out.text()),
      ElementsAre(HasSubstr("job 12 (rn18-demo) is RUNNING"),
                  HasSubstr("step 100/400  epoch 2.50  812 images/s  loss 1.500  top-1 25.0 %  eta 1m02s"),
                  HasSubstr("epoch 1/2 validated: top-1 92.4 %, top-5 99.8 %"),
                  HasSubstr("RUNNING -> COMPLETED: trained to the last step (scheduler)"),
                  AllOf(HasSubstr("job 12 (rn18-demo) COMPLETED after 50s"),
                        HasSubstr("top-1 92.4 %, top-5 99.8 %"))));
  EXPECT_THAT(process.out.text(), Not(HasSubstr("\x1b")));
}

TEST_F(Watch, WhereNobodyKnowsHowLongItTakesNothingIsSaidOfThat) {
  auto event = StepEvent(100, 400);
  event.mutable_step()->set_eta_seconds(0);
  EXPECT_EQ(EventText(event), "step 100/400  epoch 2.50  812 images/s  loss 1.500  top-1 25.0 %");
  auto call = CallTo(daemon_.address(), {"watch", "12"});
  call.terminal = {.is_terminal = true, .utf8 = true, .width = [] { return 100; }};
  CliProcess process(call);
  daemon_.AwaitStreams(1);
  daemon_.AddEvent(12, event);
  process.out.WaitFor("step 100/400");
  Finish(v1::JOB_STATE_COMPLETED, "done");
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.out.text(), Not(HasSubstr("eta")));
}

TEST_F(Watch, AFailedJobTellsWhichRankAndEndsWith6) {
  auto job = daemon_.GetJob(12);
  auto& exit = *job.add_rank_exits();
  exit.set_rank(1);
  exit.set_signal(11);
  exit.set_last_error_line("bad batch");
  daemon_.PutJob(job);
  CliProcess process(CallTo(daemon_.address(), {"watch", "rn18-demo"}));
  daemon_.AwaitStreams(1);
  Finish(v1::JOB_STATE_FAILED, "rank 1 was ended by SIGSEGV");
  EXPECT_EQ(process.Wait(), 6);
  EXPECT_THAT(process.out.text(),
              AllOf(HasSubstr("FAILED after 50s"), HasSubstr("rank 1: killed by SIGSEGV: bad batch")));
}

TEST_F(Watch, ACancelledJobEndsWith7AlsoWhenItHadEndedBefore) {
  daemon_.PutJob(MakeJob(13, "gone", v1::JOB_STATE_CANCELLED));
  EXPECT_EQ(RunCli(CallTo(daemon_.address(), {"watch", "13"})).exit_code, 7);
  const auto waited = RunCli(CallTo(daemon_.address(), {"wait", "13"}));
  EXPECT_EQ(waited.exit_code, 7);
  EXPECT_THAT(waited.out, IsEmpty());
}

TEST_F(Watch, GoesOnAfterARestartWithoutGapOrDouble) {
  CliProcess process(CallTo(daemon_.address(), {"watch", "12", "--from-event", "1"}));
  daemon_.AwaitStreams(1);
  daemon_.AddEvent(12, StepEvent(1, 400));
  daemon_.AddEvent(12, StepEvent(2, 400));
  process.out.WaitFor("step 2/400");
  daemon_.Stop();
  process.err.WaitFor("the job goes on without it");
  daemon_.AddEvent(12, StepEvent(3, 400));
  daemon_.Start();
  process.err.WaitFor("imgd is back: job 12 (rn18-demo) is RUNNING");
  daemon_.AddEvent(12, StepEvent(4, 400));
  Finish(v1::JOB_STATE_COMPLETED, "done");
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(
      Lines(process.out.text()),
      ElementsAre(HasSubstr("step 1/"), HasSubstr("step 2/"), HasSubstr("step 3/"), HasSubstr("step 4/"),
                  HasSubstr("-> COMPLETED"), HasSubstr("job 12 (rn18-demo) COMPLETED")));
  EXPECT_THAT(Lines(process.err.text()), SizeIs(2)) << "the outage is told once, and its end";
  EXPECT_EQ(daemon_.watches().back().after_event(), 2u);
}

TEST_F(Watch, WhatHappenedInAnOutageIsShownWhereTheJobEndedInIt) {
  CliProcess process(CallTo(daemon_.address(), {"watch", "12", "-o", "json"}));
  daemon_.AwaitStreams(1);
  daemon_.AddEvent(12, StepEvent(1, 400));
  process.out.WaitFor("total_steps");
  daemon_.Stop();
  process.err.WaitFor("the job goes on without it");
  daemon_.AddEvent(12, StepEvent(2, 400));
  Finish(v1::JOB_STATE_COMPLETED, "done");
  daemon_.Start();
  EXPECT_EQ(process.Wait(), 0);
  const auto lines = Lines(process.out.text());
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_EQ(nlohmann::json::parse(lines[1])["step"]["step"], "2");
  EXPECT_EQ(nlohmann::json::parse(lines[2])["state_change"]["to"], "JOB_STATE_COMPLETED");
}

TEST_F(Watch, GivesUpAfterTheTimeoutThatWasAskedFor) {
  CliProcess process(CallTo(daemon_.address(), {"--timeout", "3s", "watch", "12"}));
  daemon_.AwaitStreams(1);
  daemon_.Stop();
  EXPECT_EQ(process.Wait(), 4);
  EXPECT_THAT(process.err.text(), HasSubstr("cannot reach imgd at " + daemon_.address()));
}

TEST_F(Watch, OnATerminalTheJobStandsInPlace) {
  auto call = CallTo(daemon_.address(), {"watch", "12"});
  call.terminal = {.is_terminal = true, .utf8 = true, .width = [] { return 100; }};
  call.env["NO_COLOR"] = "1";
  CliProcess process(call);
  daemon_.AwaitStreams(1);
  daemon_.AddEvent(12, StepEvent(188, 400));
  process.out.WaitFor("step 188/400");
  Finish(v1::JOB_STATE_COMPLETED, "done");
  EXPECT_EQ(process.Wait(), 0);
  const std::string text = process.out.text();
  EXPECT_THAT(text, AllOf(HasSubstr("\x1b[J"), HasSubstr("█"), HasSubstr("47 %"), HasSubstr("eta 1m02s")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b[0m"))) << "NO_COLOR is set";
  EXPECT_THAT(Lines(text).back(), HasSubstr("job 12 (rn18-demo) COMPLETED"));
}

TEST_F(Watch, NoLineOfTheBlockIsWiderThanTheTerminal) {
  auto job = daemon_.GetJob(12);
  job.set_reason_text(std::string(300, 'x'));
  *job.mutable_last_step() = StepEvent(188, 400).step();
  daemon_.PutJob(job);
  auto call = CallTo(daemon_.address(), {"watch", "12"});
  call.terminal = {.is_terminal = true, .utf8 = true, .width = [] { return 40; }};
  call.env["NO_COLOR"] = "1";
  CliProcess process(call);
  process.out.WaitFor("images/s");
  for (const auto& line : Lines(process.out.text())) EXPECT_LT(DisplayWidth(line), 40 + 7) << line;
  Finish(v1::JOB_STATE_COMPLETED, "done");
}

TEST(WatchBlock, AReasonHasAsManyLinesAsItTakes) {
  auto job = MakeJob(20, "big", v1::JOB_STATE_QUEUED);
  job.set_reason_text("needs 4 nodes with 1 device each, which only 2 can give; known: 2 nodes");
  std::vector<std::string> lines;
  for (const auto& line : BlockLines(job, 0, job.submitted_us(), 40, false)) {
    lines.emplace_back();
    for (const auto& cell : line) lines.back() += cell.text;
  }
  EXPECT_THAT(lines, ElementsAre("job 20 (big)  QUEUED  for 0s",         //
                                 "  needs 4 nodes with 1 device each,",  //
                                 "  which only 2 can give; known: 2 nodes"));
}

TEST_F(Watch, StoredEventsCanBeReadAsJsonLines) {
  daemon_.AddEvent(12, StepEvent(1, 400));
  daemon_.AddEvent(12, StepEvent(2, 400));
  const auto done = RunCli(CallTo(daemon_.address(), {"watch", "12", "--no-follow", "-o", "json"}));
  EXPECT_EQ(done.exit_code, 0);
  const auto lines = Lines(done.out);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(nlohmann::json::parse(lines[1])["step"]["step"], "2");
  EXPECT_EQ(nlohmann::json::parse(lines[1])["number"], "2");
}

TEST_F(Watch, StoredEventsAreReadOnWhereAStreamEndsBeforeThem) {
  for (uint64_t step = 1; step <= 5; ++step) daemon_.AddEvent(12, StepEvent(step, 400));
  const auto call = CallTo(daemon_.address(), {"watch", "12", "--no-follow", "-o", "json"});
  daemon_.LimitStreams(2);
  const auto done = RunCli(call);
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(Lines(done.out), SizeIs(5));
  daemon_.LimitStreams(0);
  EXPECT_EQ(RunCli(call).exit_code, 4);
}

TEST_F(Watch, StoredEventsCanBeReadAsYamlDocuments) {
  daemon_.AddEvent(12, StepEvent(1, 400));
  daemon_.AddEvent(12, StepEvent(2, 400));
  const auto done = RunCli(CallTo(daemon_.address(), {"watch", "12", "--no-follow", "-o", "yaml"}));
  EXPECT_EQ(done.exit_code, 0);
  const auto documents = YAML::LoadAll(done.out);
  ASSERT_THAT(documents, SizeIs(2));
  EXPECT_EQ(documents[1]["step"]["step"].as<std::string>(), "2");
}

TEST_F(Watch, ARankThatEndedWellHasNothingToExplain) {
  v1::JobEvent event;
  event.mutable_rank_exit()->set_last_error_line("imgtrain: cannot write");
  daemon_.AddEvent(12, event);
  const auto done = RunCli(CallTo(daemon_.address(), {"watch", "12", "--no-follow"}));
  EXPECT_THAT(done.out, HasSubstr("rank 0 ended, exit code 0\n"));
}

TEST_F(Watch, AWaitingJobsNewReasonIsShown) {
  auto job = MakeJob(20, "big", v1::JOB_STATE_QUEUED);
  job.set_reason_text("waits for 2 nodes");
  daemon_.PutJob(job);
  CliProcess process(CallTo(daemon_.address(), {"watch", "20"}));
  process.out.WaitFor("waits for 2 nodes");
  job.set_reason_text("waits for 1 node");
  daemon_.PutJob(job);
  process.out.WaitFor("waits for 1 node");
  daemon_.AddEvent(20, StateEvent(v1::JOB_STATE_QUEUED, v1::JOB_STATE_CANCELLED, "cancelled"));
  EXPECT_EQ(process.Wait(), 7);
}

TEST_F(Watch, AnotherReasonIsNoChangeOfState) {
  daemon_.PutJob(MakeJob(21, "big", v1::JOB_STATE_QUEUED));
  daemon_.AddEvent(21, StateEvent(v1::JOB_STATE_QUEUED, v1::JOB_STATE_QUEUED, "waits for 2 nodes"));
  const auto done = RunCli(CallTo(daemon_.address(), {"watch", "21", "--no-follow"}));
  EXPECT_THAT(done.out, HasSubstr(" QUEUED: waits for 2 nodes (scheduler)"));
}

TEST(WatchInterrupt, BreaksOffWaitsAndKeepsItsCode) {
  Interrupt interrupt;
  EXPECT_FALSE(interrupt.WaitFor(std::chrono::milliseconds(1)));
  int calls = 0;
  {
    const Interrupt::Scope scope(interrupt, [&] { ++calls; });
    interrupt.Trigger(SIGINT);
    EXPECT_EQ(calls, 1);
  }
  EXPECT_TRUE(interrupt.WaitFor(std::chrono::hours(1)));
  EXPECT_EQ(interrupt.ExitCode(), 130);
  const Interrupt::Scope late(interrupt, [&] { ++calls; });
  EXPECT_EQ(calls, 2) << "an interrupt before the call breaks it off too";
}

}  // namespace
}  // namespace imgd::cli
