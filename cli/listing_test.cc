#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/testing/fake_daemon.h"
#include "cli/testing/run_cli.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class Listing : public testing::Test {
 protected:
  CliResult RunListing(std::vector<std::string> arguments) {
    return RunCli(CallTo(daemon_.address(), std::move(arguments)));
  }

  v1::Job RunningJob() {
    auto job = MakeJob(12, "rn18-demo", v1::JOB_STATE_RUNNING);
    *job.mutable_last_step() = StepEvent(188, 400).step();
    job.mutable_last_epoch()->set_epoch(4);
    job.mutable_last_epoch()->set_val_top1(0.561);
    job.mutable_last_epoch()->set_val_top5(0.91);
    job.set_generation(2);
    job.set_restarts(1);
    job.set_reason_text("all 2 ranks train");
    auto& placement = *job.add_placements();
    placement.set_node("node-b");
    placement.set_first_rank(1);
    placement.add_devices(3);
    return job;
  }

  FakeDaemon daemon_;
};

TEST_F(Listing, JobsShowWhatARunDoes) {
  daemon_.PutJob(MakeJob(11, "old", v1::JOB_STATE_COMPLETED));
  daemon_.PutJob(RunningJob());
  const auto done = RunListing({"jobs"});
  EXPECT_EQ(done.exit_code, 0);
  const auto lines = Lines(done.out);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_THAT(lines[0], ContainsRegex("ID +NAME +STATE +PROGRESS +IMAGES/S +LOSS +TOP-1 +ETA +NODES +AGE"));
  EXPECT_THAT(lines[1],
              ContainsRegex("12 +rn18-demo +RUNNING +188/400 47 % +812 +1.500 +56.1 % +1m02s +2 +1m0"));
  EXPECT_THAT(lines[2], ContainsRegex("11 +old +COMPLETED +- +- +- +- +- +2 +1m0"));
}

TEST_F(Listing, ARunOfWhichNobodyKnowsHowLongItTakesHasNoTimeLeft) {
  auto job = RunningJob();
  job.mutable_last_step()->set_eta_seconds(0);
  daemon_.PutJob(job);
  EXPECT_THAT(RunListing({"jobs"}).out, ContainsRegex("812 +1.500 +56.1 % +- +2"));
  EXPECT_THAT(RunListing({"show", "12"}).out, Not(HasSubstr(" left")));
  daemon_.PutJob(RunningJob());
  EXPECT_THAT(RunListing({"show", "12"}).out, HasSubstr(", 1m02s left"));
}

TEST_F(Listing, AStartThatHasReportedNothingYetHasNoSpeed) {
  auto job = RunningJob();
  job.mutable_last_step()->clear_images_per_second();
  daemon_.PutJob(job);
  EXPECT_THAT(RunListing({"jobs"}).out, ContainsRegex("188/400 47 % +- +1.500"));
  EXPECT_THAT(RunListing({"show", "12"}).out,
              AllOf(ContainsRegex("training +loss 1.500"), Not(HasSubstr("waits for input"))));
}

TEST_F(Listing, AGangThatMayGrowShowsItsRangeAndItsSize) {
  auto job = RunningJob();
  job.set_nodes(2);
  job.set_max_nodes(8);
  job.set_nodes_now(4);
  job.set_ranks_per_node(1);
  EXPECT_EQ(GangText(job), "2 to 8 nodes with 1 rank each; 4 nodes now");
  EXPECT_EQ(NodesText(job), "4 (2-8)");
  EXPECT_EQ(RanksNow(job), 4U);
  EXPECT_EQ(MostRanks(job), 8U);
  job.set_state(v1::JOB_STATE_QUEUED);
  EXPECT_EQ(GangText(job), "2 to 8 nodes with 1 rank each; 4 nodes before");
  job.set_nodes_now(0);
  EXPECT_EQ(GangText(job), "2 to 8 nodes with 1 rank each");
  EXPECT_EQ(NodesText(job), "2-8");
  EXPECT_EQ(GangText(RunningJob()), "2 nodes with 1 rank each");
}

TEST_F(Listing, WhatDoesNotTrainHasAKindAndNoFigures) {
  auto command = MakeJob(13, "mae", v1::JOB_STATE_RUNNING);
  command.set_kind(v1::JOB_KIND_COMMAND);
  command.set_per_node(true);
  command.set_ranks_per_node(8);
  command.set_checkpoint_dir("/ckpt/mae");
  command.set_job_yaml("name: mae\ncommand: {run: [torchrun, train.py]}\n");
  for (uint32_t i = 0; i < 2; ++i) {
    auto& placement = *command.add_placements();
    placement.set_node(i == 0 ? "node-a" : "node-b");
    placement.set_first_rank(i);
    placement.set_ranks(1);
    for (uint32_t device = 0; device < 8; ++device) placement.add_devices(device);
  }
  daemon_.PutJob(command);
  EXPECT_THAT(Lines(RunListing({"jobs"}).out)[0], ContainsRegex("ID +NAME +KIND +STATE +NODES +AGE"));
  EXPECT_THAT(Lines(RunListing({"jobs"}).out)[1], ContainsRegex("13 +mae +command +RUNNING +2 +1m0"));
  const auto shown = RunListing({"show", "13"}).out;
  EXPECT_THAT(shown, AllOf(ContainsRegex("command +torchrun train.py"), ContainsRegex("folder +/ckpt/mae"),
                           HasSubstr("2 nodes with one process and 8 devices each"),
                           ContainsRegex("node-b +1 +0-7")));
  EXPECT_THAT(shown, AllOf(Not(HasSubstr("checkpoints")), Not(HasSubstr("nan"))));
  daemon_.PutJob(RunningJob());
  EXPECT_THAT(Lines(RunListing({"jobs"}).out)[0], ContainsRegex("NAME +KIND +STATE +PROGRESS +IMAGES/S"));
  EXPECT_EQ(nlohmann::json::parse(RunListing({"explain", "13", "-o", "json"}).out)["kind"],
            "JOB_KIND_COMMAND");
}

TEST_F(Listing, ExitCodesOfATrainerAreOnlyATrainers) {
  v1::RankExit exit;
  exit.set_exit_code(11);
  EXPECT_EQ(RankExitText(exit), "exit code 11, stopped as asked");
  EXPECT_TRUE(EndedWell(exit));
  exit.set_program(true);
  EXPECT_EQ(RankExitText(exit), "exit code 11");
  EXPECT_FALSE(EndedWell(exit));
}

TEST_F(Listing, ARunByHandSaysWhereItRuns) {
  daemon_.PutJob(RunningJob());
  EXPECT_THAT(RunListing({"jobs"}).out, Not(HasSubstr("NOT MANAGED"))) << "most lists have none";
  auto job = MakeJob(13, "mine", v1::JOB_STATE_RUNNING);
  job.mutable_external()->add_hosts("gpu-3");
  job.mutable_external()->add_hosts("gpu-4");
  daemon_.PutJob(job);
  EXPECT_THAT(RunListing({"jobs"}).out,
              AllOf(HasSubstr("NOT MANAGED"), HasSubstr("started by hand on gpu-3 and 1 other host")));
  EXPECT_THAT(RunListing({"show", "13"}).out,
              HasSubstr("started by hand on gpu-3 and 1 other host; imgd only"));
  EXPECT_THAT(RunListing({"logs", "13"}).err, HasSubstr("was started by hand on gpu-3"));
}

TEST_F(Listing, JobsInJsonAreAnArray) {
  daemon_.PutJob(RunningJob());
  const auto json = nlohmann::json::parse(RunListing({"jobs", "-o", "json"}).out);
  ASSERT_THAT(json, SizeIs(1));
  EXPECT_EQ(json[0]["last_step"]["total_steps"], "400");
  EXPECT_EQ(json[0]["state"], "JOB_STATE_RUNNING");
}

TEST_F(Listing, NoJobsAreAnEmptyArrayAndAWordForPeople) {
  EXPECT_EQ(RunListing({"jobs", "-o", "json"}).out, "[]\n");
  const auto done = RunListing({"jobs"});
  EXPECT_THAT(done.out, IsEmpty());
  EXPECT_THAT(done.err, HasSubstr("no jobs yet"));
}

TEST_F(Listing, OnlyTheNewestAreListedUnlessAllAreAskedFor) {
  for (uint64_t id = 1; id <= 25; ++id) daemon_.PutJob(MakeJob(id, "job", v1::JOB_STATE_COMPLETED));
  const auto some = RunListing({"jobs", "--limit", "3"});
  EXPECT_THAT(Lines(some.out), SizeIs(4));
  EXPECT_THAT(some.err, HasSubstr("--all shows every one"));
  const auto all = RunListing({"jobs", "--all"});
  EXPECT_THAT(Lines(all.out), SizeIs(26));
  EXPECT_THAT(all.err, IsEmpty());
}

TEST_F(Listing, FiltersGoToTheDaemon) {
  RunListing({"jobs", "--state", "running", "--state", "QUEUED", "--owner", "lena", "--name", "rn"});
  const auto lists = daemon_.lists();
  ASSERT_EQ(lists.size(), 1u);
  EXPECT_THAT(lists[0].states(), ElementsAre(v1::JOB_STATE_RUNNING, v1::JOB_STATE_QUEUED));
  EXPECT_EQ(lists[0].owner(), "lena");
  EXPECT_EQ(lists[0].name_contains(), "rn");
  const auto wrong = RunListing({"jobs", "--state", "runing"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean 'RUNNING'?"));
}

TEST_F(Listing, ShowTellsEverything) {
  daemon_.PutJob(RunningJob());
  daemon_.AddEvent(12, StateEvent(v1::JOB_STATE_UNSPECIFIED, v1::JOB_STATE_QUEUED, "submitted by lena"));
  daemon_.AddEvent(12, StateEvent(v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING, "all 2 ranks train"));
  auto job = daemon_.GetJob(12);
  auto& exit = *job.add_rank_exits();
  exit.set_rank(1);
  exit.set_signal(9);
  exit.set_last_error_line("\x1b[31mout of memory");
  daemon_.PutJob(job);
  const auto done = RunListing({"show", "12"});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_THAT(done.out, AllOf(HasSubstr("job 12 (rn18-demo)  RUNNING"), HasSubstr("all 2 ranks train"),
                              HasSubstr("2 nodes with 1 rank each"), HasSubstr("1 restart after a failure"),
                              HasSubstr("188/400 47 %"), HasSubstr("top-1 56.1 %, top-5 91.0 %")));
  EXPECT_THAT(done.out, ContainsRegex("node-b +1 +3"));
  EXPECT_THAT(done.out, ContainsRegex("1 +node-b +0 +killed by SIGKILL:  \\[31mout of memory"));
  EXPECT_THAT(done.out, ContainsRegex("QUEUED +1 +scheduler +submitted by lena"));
  EXPECT_THAT(done.out, Not(HasSubstr("\x1b")));
}

TEST_F(Listing, ShowOfAWaitingJobSaysWhatItWaitsFor) {
  auto job = MakeJob(3, "big", v1::JOB_STATE_QUEUED);
  job.set_reason_text("waits for 2 nodes; 1 is free");
  job.set_queue_position(2);
  daemon_.PutJob(job);
  EXPECT_THAT(RunListing({"show", "big"}).out,
              AllOf(HasSubstr("waits for 2 nodes; 1 is free"), HasSubstr("position 2")));
}

TEST_F(Listing, ShowOfAJobWhoseRanksNeverRanSaysNotThatItTookAnything) {
  auto job = MakeJob(3, "big", v1::JOB_STATE_FAILED);
  job.set_started_us(1'000'000);
  job.set_ended_us(1'400'000);
  job.set_held_ms(400);
  daemon_.PutJob(job);
  daemon_.AddEvent(3, StateEvent(v1::JOB_STATE_QUEUED, v1::JOB_STATE_STARTING, "starts"));
  daemon_.AddEvent(3, StateEvent(v1::JOB_STATE_STARTING, v1::JOB_STATE_FAILED, "no such program"));
  EXPECT_THAT(RunListing({"show", "3"}).out, Not(HasSubstr("took")));
  daemon_.AddEvent(3, StateEvent(v1::JOB_STATE_RUNNING, v1::JOB_STATE_FAILED, "rank 1 was ended by SIGSEGV"));
  EXPECT_THAT(RunListing({"show", "3"}).out, HasSubstr("took"));
}

TEST_F(Listing, ShowTellsHowLongAJobRanWithoutItsPauses) {
  auto job = MakeJob(1, "rn18", v1::JOB_STATE_PAUSED);
  job.set_started_us(NowMicros() - 600'000'000);
  job.set_held_ms(160'000);
  daemon_.PutJob(job);
  EXPECT_THAT(RunListing({"show", "1"}).out, ContainsRegex("so far +2m40s"));
  daemon_.AddEvent(1, StateEvent(v1::JOB_STATE_RUNNING, v1::JOB_STATE_PAUSED, "paused by lena"));
  daemon_.AddEvent(1, StateEvent(v1::JOB_STATE_PAUSED, v1::JOB_STATE_CANCELLED, "cancelled by lena"));
  EXPECT_THAT(RunListing({"show", "1"}).out, ContainsRegex("took +2m40s"));
}

TEST_F(Listing, ShowTellsWhetherARunWaitsForItsData) {
  auto job = MakeJob(1, "rn18", v1::JOB_STATE_RUNNING);
  *job.mutable_last_step() = StepEvent(1, 2).step();
  auto& loader = *job.mutable_last_step()->mutable_loader();
  loader.set_interval_seconds(2);
  loader.set_wait_seconds(0.5);
  loader.set_workers(4);
  loader.set_idle_seconds(2);
  loader.set_read_seconds(1);
  loader.set_decode_seconds(4);
  loader.set_images(1000);
  loader.set_bytes(200 << 20);
  daemon_.PutJob(job);
  EXPECT_THAT(RunListing({"show", "1"}).out,
              HasSubstr("loader       too slow: training waits for data 25.0 % of the "
                        "time; 4 threads 75.0 % busy; an image: read 1.0 ms, decode "
                        "4.0 ms, resize and augment 0.0 ms; 100 MiB/s"));
  loader.set_wait_seconds(0.01);
  loader.set_images_left_to_cpu(12);
  daemon_.PutJob(job);
  EXPECT_THAT(RunListing({"show", "1"}).out,
              AllOf(HasSubstr("keeps up: training waits for data 0.5 %"),
                    HasSubstr("100 MiB/s; nvJPEG left 12 of 1000 images to the CPU")));
}

TEST_F(Listing, ShowTellsWhereTheTimeGoesAndWhichRankIsSlow) {
  auto job = MakeJob(1, "rn18", v1::JOB_STATE_RUNNING);
  *job.mutable_last_step() = StepEvent(1, 2).step();
  daemon_.PutJob(job);
  EXPECT_THAT(RunListing({"show", "1"}).out,
              AllOf(Not(HasSubstr("\n  time ")), Not(HasSubstr("\n  ranks "))));
  job.mutable_last_step()->mutable_loader()->set_interval_seconds(2);
  auto& times = *job.mutable_last_step()->mutable_times();
  times.set_steps(4);
  times.set_input_seconds(0.1);
  times.set_forward_seconds(0.5);
  times.set_backward_seconds(1);
  times.set_communication_seconds(0.2);
  times.set_optimizer_seconds(0.1);
  times.set_all_reduce_seconds(0.04);
  times.set_all_reduce_hidden_ratio(0.75);
  auto& ranks = *job.mutable_last_step()->mutable_ranks();
  ranks.set_ranks(4);
  ranks.set_slowest_rank(3);
  ranks.set_own_least_seconds(0.3);
  ranks.set_own_mean_seconds(0.32);
  ranks.set_own_most_seconds(0.4);
  ranks.set_wait_least_seconds(0.002);
  ranks.set_wait_most_seconds(0.1);
  daemon_.PutJob(job);
  EXPECT_THAT(RunListing({"show", "1"}).out,
              AllOf(HasSubstr("time         500 ms a step: input 5.0 %, forward 25.0 %, backward 50.0 %, "
                              "communication 10.0 %, optimiser 5.0 %, other 5.0 %; the all-reduce takes 40 "
                              "ms, 75.0 % of it behind the backward pass"),
                    HasSubstr("ranks        rank 3 is slow: 400 ms a step of its own where the mean is 320 "
                              "ms; they wait 2.0 ms to 100 ms for one another")));
  ranks.set_slowest_input_seconds(0.3);
  daemon_.PutJob(job);
  EXPECT_THAT(RunListing({"show", "1"}).out, HasSubstr("320 ms, most of it waiting for input; they wait"));
  ranks.set_own_most_seconds(0.33);
  daemon_.PutJob(job);
  EXPECT_THAT(RunListing({"show", "1"}).out,
              HasSubstr("alike: 300 ms to 330 ms a step of their own (rank 3 the slowest); they wait"));
}

TEST_F(Listing, AJobIsFoundByItsNumberOrItsName) {
  daemon_.PutJob(MakeJob(1, "rn18", v1::JOB_STATE_COMPLETED));
  daemon_.PutJob(MakeJob(2, "rn18", v1::JOB_STATE_QUEUED));
  daemon_.PutJob(MakeJob(3, "rn18", v1::JOB_STATE_FAILED));
  daemon_.PutJob(MakeJob(4, "rn18-other", v1::JOB_STATE_QUEUED));
  EXPECT_THAT(RunListing({"show", "1"}).out, HasSubstr("job 1 (rn18)"));
  EXPECT_THAT(RunListing({"show", "rn18"}).out, HasSubstr("job 2 (rn18)")) << "the one that has not ended";
  daemon_.PutJob(MakeJob(2, "rn18", v1::JOB_STATE_CANCELLED));
  EXPECT_THAT(RunListing({"show", "rn18"}).out, HasSubstr("job 3 (rn18)")) << "the newest when all have";
}

TEST_F(Listing, HoweverManyHaveEndedAJobIsFoundAtOnce) {
  daemon_.PutJob(MakeJob(1, "rn50", v1::JOB_STATE_RUNNING));
  for (uint64_t id = 2; id <= 2500; ++id) daemon_.PutJob(MakeJob(id, "rn50", v1::JOB_STATE_COMPLETED));
  EXPECT_THAT(RunListing({"show", "rn50"}).out, HasSubstr("job 1 (rn50)"));
  EXPECT_THAT(daemon_.lists(), SizeIs(1));
  daemon_.PutJob(MakeJob(1, "rn50", v1::JOB_STATE_COMPLETED));
  EXPECT_THAT(RunListing({"show", "rn50"}).out, HasSubstr("job 2500 (rn50)"));
  EXPECT_THAT(daemon_.lists(), SizeIs(3)) << "those that have not ended, then a page of the others";
}

TEST_F(Listing, ANameThatSeveralLiveJobsHaveIsRefused) {
  daemon_.PutJob(MakeJob(1, "rn18", v1::JOB_STATE_RUNNING));
  daemon_.PutJob(MakeJob(2, "rn18", v1::JOB_STATE_QUEUED));
  const auto done = RunListing({"cancel", "rn18"});
  EXPECT_EQ(done.exit_code, 3);
  EXPECT_THAT(done.err, HasSubstr("2 jobs named 'rn18' have not ended: 2, 1"));
  EXPECT_EQ(daemon_.cancels().size(), 0u);
}

TEST_F(Listing, AnUnknownJobIsNotFoundAndTheNearestNamed) {
  daemon_.PutJob(MakeJob(1, "rn18-demo", v1::JOB_STATE_RUNNING));
  const auto named = RunListing({"show", "rn18-dmo"});
  EXPECT_EQ(named.exit_code, 3);
  EXPECT_EQ(named.err, "error: no job is named 'rn18-dmo' (did you mean 'rn18-demo'?)\n");
  const auto numbered = RunListing({"show", "77"});
  EXPECT_EQ(numbered.exit_code, 3);
  EXPECT_THAT(numbered.err, HasSubstr("no job has the number 77"));
}

TEST_F(Listing, NodesShowWhatIsFreeAndWhoHoldsTheRest) {
  v1::Node node;
  node.set_name("gpu-1");
  node.set_state(v1::NODE_STATE_READY);
  node.set_agent_version("0.1.0");
  node.set_address("10.0.0.7");
  node.set_last_heartbeat_us(NowMicros() - 2'000'000);
  for (uint32_t i = 0; i < 4; ++i) {
    auto& device = *node.add_devices();
    device.set_index(i);
    device.set_model("NVIDIA H100");
    device.set_memory_bytes(80ull << 30);
    device.set_job_id(i < 2 ? 12 : 0);
    device.mutable_reading()->set_busy_ratio(i < 2 ? 0.9 : 0);
  }
  daemon_.PutNode(node);
  node.set_name("gpu-2");
  node.set_state(v1::NODE_STATE_UNREACHABLE);
  node.set_reason_text("no heartbeat for 20 s");
  daemon_.PutNode(node);
  const auto lines = Lines(RunListing({"nodes", "-o", "wide"}).out);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_THAT(lines[1],
              ContainsRegex("gpu-1 +ready +4 +2 +NVIDIA H100 +12 +45.0 % +[23]s ago +10.0.0.7 +0.1.0"));
  EXPECT_THAT(lines[2], ContainsRegex("gpu-2 +unreachable +4 +0 .*no heartbeat for 20 s"))
      << "nothing can be placed on a node that is out of reach";
  EXPECT_EQ(nlohmann::json::parse(RunListing({"nodes", "-o", "json"}).out)[1]["state"],
            "NODE_STATE_UNREACHABLE");
}

TEST_F(Listing, NodesShowFiguresOfWhatWasReadAlone) {
  v1::Node node;
  node.set_name("gpu-1");
  node.set_state(v1::NODE_STATE_READY);
  for (uint32_t i = 0; i < 2; ++i) {
    auto& device = *node.add_devices();
    device.set_index(i);
    device.set_model("NVIDIA H100");
    device.set_memory_bytes(80ull << 30);
    auto& reading = *device.mutable_reading();
    reading.set_busy_ratio(0.9);
    reading.set_memory_used_bytes(20ull << 30);
    reading.set_power_watts(300);
    reading.set_temperature_celsius(60);
  }
  auto& second = *node.mutable_devices(1)->mutable_reading();
  second.clear_busy_ratio();
  second.set_memory_used_bytes(0);
  second.set_error("utilisation can't be read: Not Supported; memory can't be read: GPU is lost");
  daemon_.PutNode(node);
  node.set_name("gpu-2");
  second.set_error("not read for 30 s: NVML has not answered since");
  *node.mutable_devices(0)->mutable_reading() = second;
  daemon_.PutNode(node);
  node.set_name("gpu-3");
  node.mutable_devices(0)->mutable_reading()->clear_error();
  node.set_state(v1::NODE_STATE_LOST);
  daemon_.PutNode(node);
  const auto lines = Lines(RunListing({"nodes", "-o", "wide"}).out);
  ASSERT_THAT(lines, SizeIs(4));
  EXPECT_THAT(lines[1], ContainsRegex("gpu-1 +ready .* 90.0 % .* 20.0 GiB of 80.0 GiB +600 W +60 C"));
  EXPECT_THAT(lines[2], ContainsRegex("gpu-2 +ready +2 +2 +NVIDIA H100 +- +- +- +- +- +- +- +- +- "));
  EXPECT_THAT(lines[3], ContainsRegex("gpu-3 +lost +2 +0 +NVIDIA H100 +- +- +- +- +- +- +- +- +- "));
}

TEST_F(Listing, CancelAsksOnceForEachJobAndSaysSo) {
  daemon_.PutJob(MakeJob(1, "a", v1::JOB_STATE_RUNNING));
  daemon_.PutJob(MakeJob(2, "b", v1::JOB_STATE_QUEUED));
  const auto done = RunListing({"cancel", "1", "b", "--checkpoint"});
  EXPECT_EQ(done.exit_code, 0);
  // From the last one on: job 2 would start where job 1 gave its devices back.
  EXPECT_THAT(Lines(done.out), ElementsAre("job 2 (b) is being cancelled, after a checkpoint",
                                           "job 1 (a) is being cancelled, after a checkpoint"));
  const auto cancels = daemon_.cancels();
  ASSERT_EQ(cancels.size(), 2u);
  EXPECT_TRUE(cancels[0].checkpoint());
  EXPECT_EQ(cancels[0].actor(), "lena");
}

TEST_F(Listing, CancelWaitsForTheEndWhereAsked) {
  daemon_.PutJob(MakeJob(1, "a", v1::JOB_STATE_RUNNING));
  CliProcess process(CallTo(daemon_.address(), {"cancel", "1", "--wait"}));
  daemon_.AwaitStreams(1);
  daemon_.AddEvent(1, StateEvent(v1::JOB_STATE_RUNNING, v1::JOB_STATE_CANCELLED, "cancelled by lena"));
  EXPECT_EQ(process.Wait(), 0) << "that it was cancelled is what was wanted";
  EXPECT_THAT(process.err.text(), HasSubstr("CANCELLED"));
}

TEST_F(Listing, CancelAsksForEveryEndBeforeItWaitsForOne) {
  daemon_.PutJob(MakeJob(1, "a", v1::JOB_STATE_RUNNING));
  daemon_.PutJob(MakeJob(2, "b", v1::JOB_STATE_RUNNING));
  CliProcess process(CallTo(daemon_.address(), {"cancel", "1", "2", "--wait", "-o", "json"}));
  daemon_.AwaitStreams(1);
  EXPECT_THAT(daemon_.cancels(), SizeIs(2));
  for (const uint64_t id : {1, 2})
    daemon_.AddEvent(id, StateEvent(v1::JOB_STATE_RUNNING, v1::JOB_STATE_CANCELLED, "cancelled by lena"));
  EXPECT_EQ(process.Wait(), 0);
  const auto json = nlohmann::json::parse(process.out.text());
  ASSERT_THAT(json, SizeIs(2));
  EXPECT_EQ(json[0]["name"], "a");
  EXPECT_EQ(json[0]["state"], "JOB_STATE_CANCELLED") << "as it is after the wait";
}

TEST_F(Listing, CancelOfAnEndedJobIsRefused) {
  daemon_.on_cancel = [](const auto&) -> Reply<v1::CancelJobResponse> {
    return tl::unexpected(
        Errors{Error{.code = ErrorCode::kFailedPrecondition, .message = "job 1 has COMPLETED already"}});
  };
  const auto done = RunListing({"cancel", "1"});
  EXPECT_EQ(done.exit_code, 5);
  EXPECT_EQ(done.err, "error: job 1 has COMPLETED already\n");
}

TEST_F(Listing, ANarrowTerminalCutsTheNameAndNothingWraps) {
  daemon_.PutJob(MakeJob(1, "a-name-that-is-much-too-long-for-this", v1::JOB_STATE_RUNNING));
  auto call = CallTo(daemon_.address(), {"jobs", "--color", "never"});
  call.terminal = {.is_terminal = true, .utf8 = true, .width = [] { return 80; }};
  const auto lines = Lines(RunCli(call).out);
  EXPECT_THAT(lines[1], AllOf(HasSubstr("a-name-that-"), HasSubstr("…"), HasSubstr("1m0")));
}

TEST_F(Listing, WhatIsWrongWithTheDaemonIsSaidBesideWhatItShows) {
  v1::Job job;
  job.set_id(1);
  job.set_name("rn50");
  daemon_.PutJob(job);
  daemon_.SetWarning("imgd can't store anything: the disk is full");
  for (const char* command : {"jobs", "nodes"}) {
    EXPECT_THAT(RunListing({command}).err, HasSubstr("warning: imgd can't store anything: the disk is full"))
        << command;
  }
  EXPECT_THAT(RunListing({"show", "1"}).err, HasSubstr("warning: imgd can't store anything"));
}

}  // namespace
}  // namespace imgd::cli
