#include <gmock/gmock.h>

#include "common/job_file.h"
#include "common/times.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kHead = "name: a\ndata: {train: /x}\ntrain: {epochs: 30}\n";

/// All errors of the file that this makes, each on its line.
std::string WaitErrorsOf(const std::string& more) {
  const auto spec = ParseJobFile(kHead + more, "job.yaml");
  std::string out;
  if (spec) return out;
  for (const auto& error : spec.error()) out += error.ToString() + "\n";
  return out;
}

TEST(JobFileWaits, AJobComesAfterOthersByNumberOrName) {
  const auto spec = ParseJobFile(
      std::string(kHead) + "after: [12, rn50-pre, {job: 'rn18[3]', when: any}, {job: 9, when: failed}]\n",
      "job.yaml");
  ASSERT_TRUE(spec.has_value());
  std::vector<std::string> found;
  for (const auto& [job, when] : spec->after) found.push_back(job + " " + when);
  EXPECT_THAT(found, ElementsAre("12 ok", "rn50-pre ok", "rn18[3] any", "9 failed"));
  EXPECT_EQ(ParseJobFile(std::string(kHead) + "after: pre\n", "job.yaml")->after.size(), 1u);
}

TEST(JobFileWaits, WhatIsWrongWithAfterIsNamed) {
  std::string many = "after: [1";
  for (int i = 0; i < 30'000; ++i) many += ", 1";
  EXPECT_EQ(WaitErrorsOf(many + "]\n"), "job.yaml:4:8: after: found 30001 jobs; at most 100 are allowed\n");
  EXPECT_THAT(WaitErrorsOf("after: [{when: any}]\n"), HasSubstr("job.yaml:4:9: after[0].job: missing"));
  EXPECT_THAT(WaitErrorsOf("after: [{job: 3, when: okay}]\n"),
              HasSubstr("after[0].when: found 'okay'; allowed: ok, any, failed (did you mean 'ok'?)"));
  EXPECT_THAT(WaitErrorsOf("after: [[3]]\n"), HasSubstr("after: found a list where text or a mapping"));
  EXPECT_THAT(WaitErrorsOf("after: [{jobs: 3}]\n"), HasSubstr("unknown key (did you mean 'job'?)"));
}

TEST(JobFileWaits, NotBeforeIsATimeWithItsZoneOrADuration) {
  const auto spec = [](const std::string& value) {
    return ParseJobFile(std::string(kHead) + "not_before: " + value + "\n", "job.yaml");
  };
  EXPECT_EQ(spec("2026-12-01T02:00:00Z")->not_before_us, 1'796'090'400'000'000);
  EXPECT_EQ(spec("2026-12-01 03:00+01:00")->not_before_us, 1'796'090'400'000'000);
  EXPECT_EQ(spec("8h")->not_before_delay_ms, 8 * 3'600'000);
  for (const char* bad : {"2026-12-01T02:00:00", "2026-13-01T02:00:00Z", "2026-12-01", "02:00", "tomorrow"})
    EXPECT_THAT(WaitErrorsOf(fmt::format("not_before: {}\n", bad)), HasSubstr("where a time with its zone"))
        << bad;
  EXPECT_EQ(WaitErrorsOf("not_before: 5000d\n"),
            "job.yaml:4:13: not_before: found '5000d'; at most 3650d is allowed\n");
}

TEST(JobFileWaits, TimesHaveZones) {
  EXPECT_EQ(ParseTime("1970-01-01T00:00:01Z"), 1'000'000);
  EXPECT_EQ(ParseTime("1970-01-01T00:00-00:30"), 1'800'000'000);
  for (const char* bad :
       {"", "1970", "1970-02-30T00:00Z", "1970-01-01T24:00Z", "1970-01-01T00:60Z", "1970-01-01T00:00",
        "1970-01-01T00:00Zx", "-970-01-01T00:00Z", "1970-01-01T00:00+1:00"})
    EXPECT_FALSE(ParseTime(bad)) << bad;
}

TEST(JobFileWaits, ASweepIsOneOfItsKinds) {
  EXPECT_THAT(WaitErrorsOf("sweep: {max_running: 2}\n"), HasSubstr("sweep: one of grid, list and random"));
  EXPECT_THAT(WaitErrorsOf("sweep: {grid: {seed: [1]}, list: [{seed: 1}]}\n"),
              HasSubstr("one of grid, list"));
  EXPECT_THAT(WaitErrorsOf("sweep: {grid: {}}\n"), HasSubstr("sweep.grid: is empty"));
  EXPECT_THAT(WaitErrorsOf("sweep: {grid: {seed: 3}}\n"),
              HasSubstr("sweep.grid.seed: found '3' where a list of values is expected"));
  EXPECT_THAT(WaitErrorsOf("sweep: {grid: {seed: [1], name: [x]}}\n"),
              HasSubstr("sweep.grid.name: can't be swept"));
  EXPECT_THAT(WaitErrorsOf("sweep: {random: {n: 3}}\n"), HasSubstr("sweep.random.params: missing"));
  EXPECT_THAT(WaitErrorsOf("sweep: {random: {n: 3, params: {seed: {uniform: [2, 1]}}}}\n"),
              HasSubstr("uniform: two numbers are expected, the lower one first"));
  EXPECT_THAT(WaitErrorsOf("sweep: {random: {n: 3, params: {seed: {}}}}\n"),
              HasSubstr("one of choice, uniform"));
  EXPECT_THAT(WaitErrorsOf("sweep: {random: {n: 3, params: {seed: {log_uniform: [0, 1]}}}}\n"),
              HasSubstr("above 0"));
  EXPECT_THAT(WaitErrorsOf("sweep: {gird: {seed: [1]}}\n"), HasSubstr("did you mean 'grid'?"));
}

TEST(JobFileWaits, ASweepHasABound) {
  std::string values = "[0";
  for (int i = 1; i < 101; ++i) values += fmt::format(",{}", i);
  values += "]";
  EXPECT_THAT(WaitErrorsOf(fmt::format("sweep: {{grid: {{seed: {}, optimizer.lr: {}}}}}\n", values, values)),
              HasSubstr("sweep: makes more than the 10000 jobs that are allowed"));
  EXPECT_THAT(WaitErrorsOf("sweep: {random: {n: 10001, params: {seed: {choice: [1]}}}}\n"),
              HasSubstr("sweep.random.n: found '10001'"));
}

TEST(JobFileWaits, RungsAreEpochsBeforeTheEnd) {
  const auto rungs = [](const std::string& halving) {
    const auto spec = ParseJobFile(
        "name: a\ndata: {train: /x, val: /v}\ntrain: {epochs: 30}\n"
        "sweep: {grid: {seed: [1, 2]}, halving: {" +
            halving + "}}\n",
        "job.yaml");
    EXPECT_TRUE(spec.has_value()) << halving;
    return spec ? spec->sweep->halving->rungs : std::vector<int>();
  };
  EXPECT_THAT(rungs("first: 2, factor: 3"), ElementsAre(2, 6, 18));
  EXPECT_THAT(rungs("first: 10"), ElementsAre(10));
  EXPECT_THAT(rungs("rungs: [5, 7], metric: loss, factor: 2"), ElementsAre(5, 7));
  const auto error = [](const std::string& halving) {
    return WaitErrorsOf("sweep: {grid: {seed: [1, 2]}, halving: {" + halving + "}}\n");
  };
  EXPECT_THAT(error("first: 2"), HasSubstr("sweep.halving: needs validation; set data.val"));
  EXPECT_THAT(error("first: 30"), HasSubstr("epoch 30 is not before the end, train.epochs is 30"));
  EXPECT_THAT(error("rungs: [7, 5]"), HasSubstr("rising whole numbers below train.epochs, 30"));
  EXPECT_THAT(error("metric: top1"), HasSubstr("either rungs, a list of epochs, or first"));
  EXPECT_THAT(error("first: 1, factor: 1"), HasSubstr("from 2 to 1000"));
}

TEST(JobFileWaits, AHalvingThatCouldStopNothingIsRefused) {
  const auto errors = [](const std::string& halving, const std::string& train, const std::string& more = "") {
    const auto spec =
        ParseJobFile("name: a\ndata: {train: /x, val: /y}\ntrain: {" + train +
                         "}\nsweep: {grid: {seed: [1, 2]" + more + "}, halving: {" + halving + "}}\n",
                     "job.yaml");
    std::string out;
    if (spec) return out;
    for (const auto& error : spec.error()) out += error.ToString() + "\n";
    return out;
  };
  EXPECT_EQ(
      errors("rungs: [1, 2]", "epochs: 4, eval_every_epochs: 4"),
      "job.yaml:4:48: sweep.halving.rungs: nothing could be stopped: from epoch 1 on, the end, at 4, is "
      "the first validation (train.eval_every_epochs is 4; less is needed)\n");
  EXPECT_THAT(errors("first: 5", "epochs: 6, eval_every_epochs: 4"),
              HasSubstr("halving.first: nothing could"));
  EXPECT_EQ(errors("rungs: [1, 2]", "epochs: 4, eval_every_epochs: 2"), "");
  EXPECT_EQ(errors("rungs: [1, 2]", "epochs: 4"), "");
  EXPECT_EQ(errors("rungs: [1]", "epochs: 4, eval_every_epochs: 4", ", train.eval_every_epochs: [1, 2]"), "");
}

TEST(JobFileWaits, WhoLooksForATimeInTheScheduleIsToldWhereItIs) {
  const std::string told = "when a job may start is said by not_before";
  EXPECT_THAT(WaitErrorsOf("schedule: nightly\n"), HasSubstr(told));
  EXPECT_THAT(WaitErrorsOf("schedule: {cron: 0 2 * * *}\n"),
              testing::AllOf(HasSubstr("schedule.cron: unknown key (allowed here: "), HasSubstr(told)));
  EXPECT_THAT(WaitErrorsOf("schedule: {gama: 0.1}\n"), HasSubstr("(did you mean 'gamma'?)"));
  const auto command = ParseJobFile("name: a\ncommand: {run: [x]}\nschedule: nightly\n", "job.yaml");
  ASSERT_FALSE(command);
  EXPECT_THAT(command.error().front().ToString(), HasSubstr(told));
}

}  // namespace
}  // namespace imgd
