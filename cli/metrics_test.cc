#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/testing/fake_daemon.h"
#include "cli/testing/run_cli.h"

namespace imgd::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class Metrics : public testing::Test {
 protected:
  Metrics() {
    daemon_.PutJob(MakeJob(12, "rn18-demo", v1::JOB_STATE_RUNNING));
    for (const double loss : {4.0, 2.0, 3.0}) {
      auto event = StepEvent(++step_, 400);
      event.mutable_step()->set_loss(loss);
      daemon_.AddEvent(12, event);
    }
  }

  CliResult Ask(std::vector<std::string> options) {
    options.insert(options.begin(), {"metrics", "rn18-demo"});
    return RunCli(CallTo(daemon_.address(), std::move(options)));
  }

  FakeDaemon daemon_;
  uint64_t step_ = 0;
};

TEST_F(Metrics, ATableHasALineForEachFigure) {
  EXPECT_THAT(Lines(Ask({}).out), ElementsAre("FIGURE  VALUES  FIRST  LAST  LEAST  GREATEST",
                                              "loss         3      4     3      2         4"));
}

TEST_F(Metrics, TheFirstValueIsTheFirstHoweverFewThePoints) {
  EXPECT_THAT(Lines(Ask({"--points", "1"}).out), ElementsAre("FIGURE  VALUES  FIRST  LAST  LEAST  GREATEST",
                                                             "loss         3      4     3      2         4"));
}

TEST_F(Metrics, CsvHasEachPoint) {
  EXPECT_THAT(Lines(Ask({"-o", "csv", "-x", "epoch"}).out),
              ElementsAre("name,epoch,min,max,last", "loss,1,4,4,4", "loss,2,2,2,2", "loss,3,3,3,3"));
}

TEST_F(Metrics, JsonIsTheAnswer) {
  const auto document = nlohmann::json::parse(Ask({"-o", "json"}).out);
  EXPECT_EQ(document["series"][0]["points"][1]["last"], 2.0);
}

TEST_F(Metrics, PlotsStandOverTheirAxis) {
  auto lines = Lines(Ask({"--plot"}).out);
  ASSERT_THAT(lines, testing::SizeIs(1 + 12 + 1));
  EXPECT_EQ(lines[0], "loss");
  EXPECT_THAT(lines[1], StartsWith("     4 |*"));
  EXPECT_THAT(lines[12], StartsWith("     2 |"));
  EXPECT_THAT(lines[13], AllOf(StartsWith("        1  "), HasSubstr("  step 3")));
}

TEST_F(Metrics, AsksForWhatWasNamed) {
  Ask({"--names", "loss,top1", "-x", "time", "--points", "20"});
  const auto asked = daemon_.metrics().front();
  EXPECT_THAT(asked.names(), ElementsAre("loss", "top1"));
  EXPECT_EQ(asked.x(), "time");
  EXPECT_EQ(asked.points(), 20u);
}

TEST_F(Metrics, WhatWasNeverReportedIsNotFoundAndTheOthersNamed) {
  const auto none = Ask({"--names", "val_top1"});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_EQ(none.out, "");
  EXPECT_EQ(none.err, "error: job 12 has reported nothing as val_top1 (it has reported loss)\n");
  const auto some = Ask({"--names", "val_top1,loss,top1", "-o", "csv"});
  EXPECT_EQ(some.exit_code, 3);
  EXPECT_THAT(Lines(some.out),
              ElementsAre("name,step,min,max,last", "loss,1,4,4,4", "loss,2,2,2,2", "loss,3,3,3,3"));
  EXPECT_THAT(some.err, HasSubstr("nothing as val_top1, top1 (it has"));
}

TEST_F(Metrics, WithoutValuesItSaysSo) {
  daemon_.PutJob(MakeJob(13, "later", v1::JOB_STATE_QUEUED));
  const auto none = RunCli(CallTo(daemon_.address(), {"metrics", "13", "--plot"}));
  EXPECT_EQ(none.exit_code, 0);
  EXPECT_EQ(none.out, "");
  EXPECT_EQ(none.err, "job 13 has reported no figures: it has not got so far yet\n");
  const auto named = RunCli(CallTo(daemon_.address(), {"metrics", "13", "--names", "loss"}));
  EXPECT_EQ(named.exit_code, 0);
  EXPECT_EQ(named.err, none.err);
  const auto csv = RunCli(CallTo(daemon_.address(), {"metrics", "13", "--names", "loss", "-o", "csv"}));
  EXPECT_EQ(csv.exit_code, 0) << csv.err;
  EXPECT_EQ(csv.out, "name,step,min,max,last\n");
  daemon_.PutJob(MakeJob(14, "ended", v1::JOB_STATE_COMPLETED));
  EXPECT_EQ(RunCli(CallTo(daemon_.address(), {"metrics", "14"})).err,
            "job 14 has reported no figures: it never did, or metrics_kept_for has removed them\n");
  const auto gone = RunCli(CallTo(daemon_.address(), {"metrics", "14", "--names", "loss"}));
  EXPECT_EQ(gone.exit_code, 3);
  EXPECT_EQ(
      gone.err,
      "error: job 14 has reported nothing as loss (it never did, or metrics_kept_for has removed them)\n");
}

TEST_F(Metrics, WhatWasNanThroughoutWasReported) {
  daemon_.PutJob(MakeJob(15, "diverged", v1::JOB_STATE_FAILED));
  auto event = StepEvent(1, 400);
  event.mutable_step()->set_loss(-NAN);
  daemon_.AddEvent(15, event);
  const auto ask = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"metrics", "15", "--names", "loss"});
    return RunCli(CallTo(daemon_.address(), std::move(options)));
  };
  const auto table = ask({});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(Lines(table.out), ElementsAre("FIGURE  VALUES  FIRST  LAST  LEAST  GREATEST",
                                            "loss         1    nan   nan    nan       nan"));
  EXPECT_THAT(Lines(ask({"-o", "csv"}).out), ElementsAre("name,step,min,max,last", "loss,1,nan,nan,nan"));
  EXPECT_EQ(ask({"--plot"}).err, "loss has no number to draw\n");
}

}  // namespace
}  // namespace imgd::cli
