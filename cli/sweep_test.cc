#include <gmock/gmock.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/testing/fake_daemon.h"
#include "cli/testing/run_cli.h"
#include "common/files.h"

namespace imgd::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct SweepCli : testing::Test {
  SweepCli() {
    v1::Sweep sweep;
    sweep.set_id(17);
    sweep.set_name("rn18");
    sweep.set_members(2);
    sweep.set_max_running(1);
    auto* rung = sweep.mutable_halving()->add_rungs();
    sweep.mutable_halving()->set_metric("top1");
    rung->set_epoch(5);
    rung->set_kept(1);
    (*rung->mutable_results())[17] = 0.61;
    daemon.PutSweep(sweep);
    for (uint64_t i = 0; i < 2; ++i) {
      auto job = MakeJob(17 + i, fmt::format("rn18[{}]", i + 1), v1::JOB_STATE_RUNNING);
      job.set_sweep_id(17);
      auto* setting = job.add_sweep_settings();
      setting->set_name("optimizer.lr");
      setting->set_value(i == 0 ? "0.1" : "0.2");
      job.mutable_last_epoch()->set_epoch(5);
      job.mutable_last_epoch()->set_val_top1(i == 0 ? 0.61 : 0.72);
      daemon.PutJob(job);
    }
    daemon.PutJob(MakeJob(3, "other", v1::JOB_STATE_QUEUED));
    daemon.on_submit = [](const v1::SubmitJobRequest& request) -> Reply<v1::SubmitJobResponse> {
      v1::SubmitJobResponse answer;
      *answer.mutable_job() = MakeJob(request.dry_run() ? 0 : 17, "rn18[1]", v1::JOB_STATE_QUEUED);
      answer.mutable_sweep()->set_id(request.dry_run() ? 0 : 17);
      answer.mutable_sweep()->set_name("rn18");
      answer.mutable_sweep()->set_members(2);
      for (const char* value : {"0.1", "0.2"}) {
        auto* setting = answer.add_settings()->add_settings();
        setting->set_name("optimizer.lr");
        setting->set_value(value);
      }
      return answer;
    };
  }
  CliResult RunIt(std::vector<std::string> arguments) {
    return RunCli(CallTo(daemon.address(), std::move(arguments)));
  }
  std::string WriteJob(const std::string& more) {
    const std::string file = testing::TempDir() + fmt::format("imgcli-sweep-{}.yaml", ::getpid());
    EXPECT_TRUE(WriteFileAtomically(file, "name: rn18\ndata: {train: /x}\n" + more));
    return file;
  }
  FakeDaemon daemon;
};

TEST_F(SweepCli, ShowsWhatItsJobsDifferInAndWhichIsTheBest) {
  const auto shown = RunIt({"sweep", "rn18"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("sweep 17 (rn18)  2 jobs: 2 RUNNING; at most 1 at once"),
                               HasSubstr("epoch 5: 1 of 2 have reached it; the best 1 by top1 go on")));
  const auto lines = Lines(shown.out);
  EXPECT_THAT(lines[2], AllOf(HasSubstr("optimizer.lr"), HasSubstr("TOP-1"), HasSubstr("BEST")));
  EXPECT_THAT(lines[3],
              AllOf(HasSubstr("rn18[1]"), HasSubstr("0.1"), HasSubstr("61.0 %"), Not(HasSubstr("best"))));
  EXPECT_THAT(lines[4],
              AllOf(HasSubstr("rn18[2]"), HasSubstr("0.2"), HasSubstr("72.0 %"), HasSubstr("best")));
  EXPECT_THAT(lines[2], Not(HasSubstr("VAL LOSS")));
  const auto wide = Lines(RunIt({"sweep", "rn18", "-o", "wide"}).out);
  EXPECT_THAT(wide[2],
              AllOf(HasSubstr("TOP-1"), HasSubstr("TOP-5"), HasSubstr("VAL LOSS"), HasSubstr("STARTS")));
  EXPECT_THAT(wide[4], AllOf(HasSubstr("rn18[2]"), HasSubstr("72.0 %"), HasSubstr("best")));
  const auto json = nlohmann::json::parse(RunIt({"sweep", "18", "-o", "json"}).out);
  EXPECT_EQ(json["sweep"]["id"], "17");
  EXPECT_EQ(json["jobs"].size(), 2u);
  EXPECT_NE(RunIt({"sweep", "nosuch"}).exit_code, 0);
}

TEST_F(SweepCli, OneThatWasStoppedOrStoppedEarlyShowsHowFarItCame) {
  auto job = daemon.GetJob(17);
  job.set_state(v1::JOB_STATE_COMPLETED);
  job.set_reason(v1::REASON_CODE_HALVED);
  job.mutable_last_step()->set_step(3);
  job.mutable_last_step()->set_epoch(1.5);
  job.mutable_last_step()->set_total_steps(12);
  job.mutable_last_epoch()->set_epoch(2);
  job.mutable_last_epoch()->set_total_epochs(6);
  job.mutable_last_epoch()->set_step(4);
  daemon.PutJob(job);
  for (const auto& command : {std::vector<std::string>{"sweep", "rn18"}, {"jobs"}, {"show", "17"}})
    EXPECT_THAT(RunIt(command).out, AllOf(HasSubstr("4/12 33 %"), Not(HasSubstr("100 %")))) << command[0];
  job.set_reason(v1::REASON_CODE_FINISHED);
  daemon.PutJob(job);
  EXPECT_THAT(RunIt({"show", "17"}).out, HasSubstr("4/12 33 %")) << "early_stop; its end was validated";
  job.mutable_last_epoch()->set_step(12);
  daemon.PutJob(job);
  EXPECT_THAT(RunIt({"show", "17"}).out, HasSubstr("12/12 100 %"));
  job.clear_last_epoch();
  daemon.PutJob(job);
  EXPECT_THAT(RunIt({"show", "17"}).out, HasSubstr("12/12 100 %")) << "without validation";
}

TEST_F(SweepCli, ASweepIsNoJobAndItsNameLeadsToIt) {
  const auto done = RunIt({"explain", "rn18"});
  EXPECT_EQ(done.exit_code, 3);
  EXPECT_EQ(done.err,
            "error: no job is named 'rn18', it is a sweep (imgcli sweep rn18 shows its jobs, which are named "
            "rn18[1] and so on)\n");
}

TEST_F(SweepCli, JobsOfASweepAreListedAndEndedTogether) {
  EXPECT_THAT(RunIt({"jobs", "--sweep", "rn18"}).out, AllOf(HasSubstr("rn18[2]"), Not(HasSubstr("other"))));
  const auto ended = RunIt({"cancel", "--sweep", "rn18", "--checkpoint"});
  EXPECT_EQ(ended.out, "2 jobs of sweep 17 (rn18) are being cancelled, after a checkpoint\n");
  ASSERT_EQ(daemon.sweep_cancels().size(), 1u);
  EXPECT_EQ(daemon.sweep_cancels()[0].id(), 17u);
  EXPECT_TRUE(daemon.sweep_cancels()[0].checkpoint());
}

TEST_F(SweepCli, ASweepIsFollowedUntilAllOfItsJobsHaveEnded) {
  const auto end = [&](uint64_t id, v1::JobState state) {
    auto job = daemon.GetJob(id);
    job.set_state(state);
    daemon.PutJob(job);
  };
  CliProcess watch(CallTo(daemon.address(), {"sweep", "rn18", "--watch"}));
  watch.out.WaitFor("0 of 2 ended: 2 RUNNING; the best so far is rn18[2], TOP-1 72.0 %");
  end(17, v1::JOB_STATE_COMPLETED);
  watch.out.WaitFor("1 of 2 ended: 1 RUNNING, 1 COMPLETED");
  CliProcess wait(CallTo(daemon.address(), {"cancel", "--sweep", "rn18", "--wait"}));
  wait.out.WaitFor("jobs of sweep 17 (rn18) are being cancelled");
  end(18, v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(watch.Wait(), 7) << "as watching the job that was cancelled";
  EXPECT_EQ(wait.Wait(), 0) << "that it ends was wanted";
}

TEST_F(SweepCli, SubmittingOneSaysWhatWasStored) {
  const std::string file = WriteJob("sweep: {grid: {optimizer.lr: [0.1, 0.2]}}\n");
  const auto done = RunIt({"submit", file});
  EXPECT_EQ(done.out, "sweep 17 (rn18) submitted: 2 jobs, jobs 17 to 18\n");
  EXPECT_THAT(done.err, HasSubstr("cancel --sweep 17"));
  EXPECT_EQ(RunIt({"submit", file, "--dry-run"}).out,
            "rn18 is fine; nothing was submitted (2 jobs of 2 nodes with 1 rank each)\n"
            "  rn18[1]  optimizer.lr=0.1\n  rn18[2]  optimizer.lr=0.2\n");
}

TEST_F(SweepCli, WhatAJobWaitsForIsGivenOnTheCommandLineAndShown) {
  const std::string file = WriteJob("after: [1]\n");
  RunIt({"submit", file, "--after", "12", "--after", "rn18[1]:any", "--not-before", "8h"});
  ASSERT_EQ(daemon.submits().size(), 1u);
  const auto sent = daemon.submits()[0].job_yaml();
  EXPECT_THAT(sent, AllOf(HasSubstr("not_before: 8h"), HasSubstr("rn18[1]"), HasSubstr("when: any"),
                          Not(HasSubstr("after: [1]"))));
  EXPECT_THAT(RunIt({"submit", file, "--after", "12:soon"}).err,
              HasSubstr("--after: found '12:soon' where JOB, JOB:ok, JOB:any or JOB:failed is expected"));
  EXPECT_THAT(RunIt({"submit", file, "--not-before", "tomorrow-ish"}).err,
              HasSubstr("--not-before tomorrow-ish: not_before: found 'tomorrow-ish'"));

  auto job = MakeJob(20, "main", v1::JOB_STATE_QUEUED);
  auto* after = job.add_after();
  after->set_job_id(12);
  after->set_job_name("pre");
  after->set_when(v1::AFTER_END_FAILED);
  after->set_ended(v1::JOB_STATE_FAILED);
  job.set_not_before_us(1'796'090'400'000'000);
  daemon.PutJob(job);
  EXPECT_THAT(RunIt({"show", "20"}).out,
              AllOf(HasSubstr("job 12 (pre) to fail: it is FAILED"), HasSubstr("not before")));
}

}  // namespace
}  // namespace imgd::cli
