#include <fmt/format.h>
#include <gmock/gmock.h>
#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>

#include "cli/testing/fake_daemon.h"
#include "cli/testing/run_cli.h"

namespace imgd::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class Logs : public testing::Test {
 protected:
  Logs() {
    auto job = MakeJob(12, "rn18-demo", v1::JOB_STATE_RUNNING);
    job.set_generation(1);
    daemon_.PutJob(job);
    daemon_.AddLine(12, Line(0, 1, "loading"));
    daemon_.AddLine(12, Line(1, 1, "loading too"));
    daemon_.AddLine(12, Line(0, 2, "training"));
  }

  CliResult RunLogs(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "logs");
    return RunCli(CallTo(daemon_.address(), std::move(arguments)));
  }

  FakeDaemon daemon_;
};

TEST_F(Logs, OfSeveralRanksNameTheRankOfEachLine) {
  const auto done = RunLogs({"12"});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_THAT(Lines(done.out), ElementsAre("[0] loading", "[1] loading too", "[0] training"));
}

TEST_F(Logs, OfOneRankAreItsLinesAsTheyAre) {
  EXPECT_THAT(Lines(RunLogs({"rn18-demo", "--rank", "0"}).out), ElementsAre("loading", "training"));
  EXPECT_THAT(Lines(RunLogs({"12", "--rank", "0", "--tail", "1"}).out), ElementsAre("training"));
}

TEST_F(Logs, HaveTimesWhereAsked) {
  EXPECT_THAT(Lines(RunLogs({"12", "--rank", "1", "--timestamps"}).out),
              ElementsAre(testing::MatchesRegex("2023-11-1. ..:13:20.000 loading too")));
}

TEST_F(Logs, AsJsonAreALineForALine) {
  const auto lines = Lines(RunLogs({"12", "--rank", "0", "-o", "json"}).out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(nlohmann::json::parse(lines[1])["line_number"], "2");
}

TEST_F(Logs, AsYamlAreADocumentForALine) {
  const auto done = RunLogs({"12", "--rank", "0", "-o", "yaml"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  const auto documents = YAML::LoadAll(done.out);
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[1]["text"].as<std::string>(), "training");
}

TEST_F(Logs, WhatAProgramWroteDoesNothingToTheTerminal) {
  daemon_.AddLine(12, Line(0, 3, "\x1b]0;title\x07\x1b[31mred\x1b[2J"));
  EXPECT_THAT(RunLogs({"12", "--rank", "0"}).out, testing::EndsWith("\nred\n"));
}

TEST_F(Logs, ASearchGoesBackPageByPageAndSaysWhatItLeavesOut) {
  for (uint64_t n = 3; n <= 7; ++n) daemon_.AddLine(12, Line(0, n, fmt::format("NaN at {}", n)));
  auto done = RunLogs({"12", "--rank", "0", "--contains", "nan"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(Lines(done.out), ElementsAre("NaN at 3", "NaN at 4", "NaN at 5", "NaN at 6", "NaN at 7"));
  EXPECT_THAT(done.err, IsEmpty());
  done = RunLogs({"12", "--rank", "0", "--contains", "nan", "--tail", "3"});
  EXPECT_THAT(Lines(done.out), ElementsAre("NaN at 5", "NaN at 6", "NaN at 7"));
  EXPECT_THAT(done.err, HasSubstr("older lines like that are left out"));
  EXPECT_THAT(RunLogs({"12", "--level", "error"}).err, HasSubstr("no line of"));
  EXPECT_THAT(RunLogs({"12", "--level", "grave"}).err, HasSubstr("warning"));
  EXPECT_EQ(RunLogs({"12", "-f", "--contains", "x"}).exit_code, 2);
}

TEST_F(Logs, FollowGoesOnAfterARestartWithoutDoubledLines) {
  CliProcess process(CallTo(daemon_.address(), {"logs", "12", "-f"}));
  process.out.WaitFor("training");
  daemon_.Stop();
  process.err.WaitFor("the log goes on once imgd is back");
  daemon_.AddLine(12, Line(1, 2, "written meanwhile"));
  daemon_.Start();
  process.out.WaitFor("written meanwhile");
  daemon_.AddLine(12, Line(0, 3, "the last"));
  daemon_.AddEvent(12, StateEvent(v1::JOB_STATE_RUNNING, v1::JOB_STATE_COMPLETED, "done"));
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(Lines(process.out.text()), ElementsAre("[0] loading", "[1] loading too", "[0] training",
                                                     "[1] written meanwhile", "[0] the last"));
}

TEST_F(Logs, FollowReadsEveryStartThatWasMadeInAnOutageAndNoNumberBetween) {
  CliProcess process(CallTo(daemon_.address(), {"logs", "12", "-f", "--rank", "0"}));
  process.out.WaitFor("training");
  daemon_.Stop();
  process.err.WaitFor("the log goes on once imgd is back");
  daemon_.AddLine(12, Line(0, 3, "why it crashed"));
  // As a restore raises them.
  for (const uint64_t start : {uint64_t{2}, uint64_t{10'003}}) {
    auto line = Line(0, 1, fmt::format("start {}", start));
    line.set_generation(start);
    daemon_.AddLine(12, line);
    auto placed = StateEvent(v1::JOB_STATE_QUEUED, v1::JOB_STATE_STARTING, "placed");
    placed.set_generation(start);
    daemon_.AddEvent(12, placed);
  }
  daemon_.Start();
  process.out.WaitFor("start 10003");
  daemon_.AddEvent(12, StateEvent(v1::JOB_STATE_RUNNING, v1::JOB_STATE_COMPLETED, "done"));
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(Lines(process.out.text()),
              ElementsAre("loading", "training", "why it crashed", "start 2", "start 10003"));
  EXPECT_THAT(daemon_.log_reads(), SizeIs(4)) << "start 1 twice, and the two others";
}

TEST_F(Logs, FollowOfAStartThatIsOverEnds) {
  auto job = daemon_.GetJob(12);
  job.set_generation(2);
  daemon_.PutJob(job);
  const auto done = RunLogs({"12", "-f", "--rank", "0", "--generation", "1"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(Lines(done.out), ElementsAre("loading", "training"));
}

TEST_F(Logs, OfAJobThatHasWrittenNothingSaySo) {
  auto job = MakeJob(13, "waiting", v1::JOB_STATE_QUEUED);
  job.set_reason_text("waits for 2 nodes");
  daemon_.PutJob(job);
  const auto done = RunLogs({"13"});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_THAT(done.out, IsEmpty());
  EXPECT_THAT(done.err, HasSubstr("it is QUEUED: waits for 2 nodes"));
}

TEST_F(Logs, OfARankOrAStartThatIsNotThereAreNotFound) {
  const auto rank = RunLogs({"12", "--rank", "2"});
  EXPECT_EQ(rank.exit_code, 3);
  EXPECT_THAT(rank.err, HasSubstr("job 12 (rn18-demo) has no rank 2; it has ranks 0 to 1"));
  const auto start = RunLogs({"12", "--generation", "5"});
  EXPECT_EQ(start.exit_code, 3);
  EXPECT_THAT(start.err, HasSubstr("has no start 5; its latest is 1"));
}

}  // namespace
}  // namespace imgd::cli
