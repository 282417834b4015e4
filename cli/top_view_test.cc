#include "cli/top_view.h"

#include <gmock/gmock.h>

#include "cli/format.h"
#include "cli/testing/fake_daemon.h"
#include "cli/testing/run_cli.h"

namespace imgd::cli {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

constexpr int64_t kNow = 1'700'000'000'000'000;
constexpr Look kSmall{.width = 80, .height = 24, .utf8 = false};

v1::Node NodeOf(const std::string& name, const std::vector<std::pair<double, uint64_t>>& busy_and_job) {
  v1::Node node;
  node.set_name(name);
  node.set_state(v1::NODE_STATE_READY);
  for (const auto& [busy, job] : busy_and_job) {
    auto& device = *node.add_devices();
    device.set_index(static_cast<uint32_t>(node.devices_size() - 1));
    device.set_model("NVIDIA H100 80GB HBM3");
    device.set_memory_bytes(80ull << 30);
    device.set_job_id(job);
    device.mutable_reading()->set_busy_ratio(busy);
    device.mutable_reading()->set_memory_used_bytes(job != 0 ? 60ull << 30 : 0);
    device.mutable_reading()->set_power_watts(650);
    device.mutable_reading()->set_temperature_celsius(61);
  }
  return node;
}

v1::Job TopJobOf(uint64_t id, const std::string& name, v1::JobState state, const std::string& reason) {
  v1::Job job;
  job.set_id(id);
  job.set_name(name);
  job.set_state(state);
  job.set_owner("lena");
  job.set_reason_text(reason);
  job.set_generation(1);
  job.set_nodes(1);
  job.set_ranks_per_node(2);
  job.set_submitted_us(kNow - 600'000'000);
  job.set_started_us(kNow - 300'000'000);
  return job;
}

/// Two nodes, of which one is cordoned; a job that trains on the first, one that waits, one that failed.
TopData Cluster() {
  TopData data;
  data.server = "head:7650";
  data.nodes = {NodeOf("gpu-1", {{0.97, 12}, {0, 12}}), NodeOf("gpu-2", {{0, 0}})};
  data.nodes[1].mutable_set_aside()->set_reason("new fan");
  auto runs = TopJobOf(12, "rn50", v1::JOB_STATE_RUNNING, "all 2 ranks train");
  *runs.mutable_last_step() = StepEvent(188, 400).step();
  auto& placement = *runs.add_placements();
  placement.set_node("gpu-1");
  placement.add_devices(0);
  placement.add_devices(1);
  data.jobs = {runs, TopJobOf(13, "big", v1::JOB_STATE_QUEUED, "needs 4 nodes; 2 are there"),
               TopJobOf(7, "old", v1::JOB_STATE_FAILED, "rank 1: killed by SIGSEGV")};
  data.losses[12] = {4, 3, 2, 1};
  return data;
}

std::vector<std::string> LinesOf(const Frame& frame) { return Lines(PlainText(frame)); }

TEST(TopView, ShowsDevicesWithWhoHoldsThemAndJobsWithFiguresOrWhyTheyHaveNone) {
  const std::string clock = LocalClock(kNow);
  EXPECT_EQ(PlainText(TopFrame(Cluster(), {}, kNow, kSmall)),
            "imgd head:7650   1 running, 1 queued   812 images/s                    " + clock +
                "\n"
                "1 of 2 nodes ready   2 of 3 devices allocated, 0 free\n"
                "  NODE           GPU BUSY              MEMORY                  JOB\n"
                "  gpu-1            0 #########.  97 %  #######... 60/80 GiB    12 rn50\n"
                "                   1 ..........   0 %  #######... 60/80 GiB    12 rn50\n"
                "  gpu-2            0 ..........   0 %  .......... 0/80 GiB     cordoned\n"
                "  ID  NAME  STATE       DONE   IMAGES/S    LOSS                   TOP-1     ETA\n"
                "> 12  rn50  RUNNING      47 %       812   1.500 '''''-----...._       -   1m02s\n"
                "  13  big   QUEUED      needs 4 nodes; 2 are there\n"
                "   7  old   FAILED      rank 1: killed by SIGSEGV\n"
                "\n\n\n\n\n\n\n\n\n\n\n\n\n"
                "arrows move  Enter opens  / filters  c cancels  Tab nodes  ? help  q quits\n");
}

TEST(TopView, ASnapshotHasAllOfItWithoutMarksAndKeys) {
  auto data = Cluster();
  for (uint64_t id = 100; id < 150; ++id)
    data.jobs.push_back(TopJobOf(id, "x", v1::JOB_STATE_QUEUED, "waits"));
  const auto lines = LinesOf(TopSnapshot(data, kNow, {.width = 120, .utf8 = false}));
  EXPECT_THAT(lines, SizeIs(2 + 1 + 4 + 1 + 1 + 53));
  EXPECT_THAT(lines, Not(testing::Contains(testing::StartsWith(">"))));
  EXPECT_THAT(lines[4], HasSubstr("60/80 GiB    61 C  650 W  12 rn50"));
  EXPECT_THAT(lines[9], HasSubstr("lena        ###.....  47 %"));
}

TEST(TopView, ManyDevicesHaveOneColumnEach) {
  TopData data = Cluster();
  data.nodes.clear();
  std::vector<std::pair<double, uint64_t>> eight(8, {0.97, 12});
  eight[3] = {0.3, 12};
  eight[7] = {0, 0};
  for (int i = 1; i <= 40; ++i) data.nodes.push_back(NodeOf(fmt::format("gpu-{}", i), eight));
  const auto lines = LinesOf(TopNodes(data, 0, {.width = 80, .height = 5, .utf8 = false}));
  EXPECT_THAT(lines, ElementsAre("  NODE            BUSY            MEMORY    JOBS",
                                 "  gpu-1           ###:###_  76 %  *******_  12 rn50",
                                 "  gpu-2           ###:###_  76 %  *******_  12 rn50",
                                 "  gpu-3           ###:###_  76 %  *******_  12 rn50",
                                 "  1 to 3 of 40 nodes; Tab, then the arrows"));
}

TEST(TopView, WhatCouldNotBeReadHasADashAndALostNodeHasNoReadings) {
  TopData data = Cluster();
  data.nodes[0].mutable_devices(0)->mutable_reading()->set_error("temperature can't be read: Not Supported");
  data.nodes[0].mutable_devices(1)->mutable_reading()->set_error(
      "utilisation can't be read: Not Supported; memory can't be read: Not Supported");
  data.nodes[1].set_state(v1::NODE_STATE_LOST);
  EXPECT_THAT(
      LinesOf(TopNodes(data, 0, {.width = 120, .height = 5, .utf8 = false})),
      ElementsAre(HasSubstr("TEMP"), HasSubstr("#########.  97 %  #######... 60/80 GiB     - C  650 W"),
                  HasSubstr("..........   - %  .......... -/80 GiB     61 C  650 W"),
                  AllOf(HasSubstr("  0 no reading  "), HasSubstr("lost"), Not(HasSubstr(" %")))));
  const auto columns = LinesOf(TopNodes(data, 0, {.width = 80, .height = 3, .utf8 = false}));
  data.nodes[1].set_state(v1::NODE_STATE_READY);
  data.nodes[1].set_disconnected(true);
  EXPECT_THAT(LinesOf(TopNodes(data, 0, {.width = 120, .height = 5, .utf8 = false})),
              Contains(AllOf(HasSubstr("  0 no reading  "), HasSubstr("disconnected"))));
  EXPECT_THAT(columns, ElementsAre(HasSubstr("NODE"), HasSubstr("#?    97 %  *     12 rn50"),
                                   AllOf(HasSubstr("lost"), Not(HasSubstr(" %")))));
}

TEST(TopView, SaysSinceWhenTheDaemonIsAway) {
  auto data = Cluster();
  data.outage = "cannot reach imgd at head:7650: Connection refused";
  data.away_since_us = kNow;
  EXPECT_EQ(LinesOf(TopFrame(data, {}, kNow, {.width = 120, .height = 24, .utf8 = false}))[2],
            "imgd has not answered since " + LocalClock(kNow) +
                ": cannot reach imgd at head:7650: Connection refused; this is what it said last");
  EXPECT_THAT(LinesOf(TopFrame(data, {.view = TopState::View::kJob, .open_job = 12}, kNow, kSmall))[0],
              HasSubstr("imgd has not answered since"));
}

TEST(TopView, AnEmptyClusterTeaches) {
  TopData data;
  data.server = "head:7650";
  const std::string text = PlainText(TopFrame(data, {}, kNow, kSmall));
  EXPECT_THAT(text, AllOf(HasSubstr("start imgagent on a machine with GPUs"),
                          HasSubstr("no jobs yet; imgcli submit job.yaml makes one")));
}

TEST(TopView, LessThanItNeedsIsSaid) {
  EXPECT_THAT(LinesOf(TopFrame(Cluster(), {}, kNow, {.width = 60, .height = 20})),
              ElementsAre("imgcli top needs 80x24;", "this terminal has 60x20.",
                          "q leaves; imgcli top --once", "prints the cluster."));
}

TEST(TopView, EveryPictureFitsItsTerminal) {
  auto data = Cluster();
  for (uint64_t id = 100; id < 300; ++id)
    data.jobs.push_back(
        TopJobOf(id, "a-long-name-of-a-job-that-is-cut", v1::JOB_STATE_QUEUED, std::string(200, 'w')));
  for (int i = 1; i <= 100; ++i)
    data.nodes.push_back(NodeOf(fmt::format("gpu-{}", i), {{0.5, 12}, {0.5, 0}}));
  data.job = TopJob{};
  *data.job->job.mutable_job() = data.jobs[0];
  for (int i = 0; i < 500; ++i)
    data.job->lines.push_back(Line(0, static_cast<uint64_t>(i), std::string(300, 'l')));
  const TopState states[] = {{},
                             {.part = TopState::Part::kNodes, .node_row = 150},
                             {.chosen_job = 299},
                             {.help = true},
                             {.view = TopState::View::kJob, .open_job = 12},
                             {.view = TopState::View::kJob, .open_job = 13}};
  for (const Look look :
       {Look{.width = 80, .height = 24}, Look{.width = 81, .height = 60}, Look{.width = 300, .height = 30}}) {
    for (const auto& state : states) {
      const Frame frame = TopFrame(data, state, kNow, look);
      EXPECT_THAT(frame, SizeIs(static_cast<size_t>(look.height)));
      for (const auto& line : frame) EXPECT_LE(WidthOf(line), look.width) << PlainText({line});
    }
  }
}

TEST(TopView, TheChosenJobIsAlwaysShown) {
  auto data = Cluster();
  for (uint64_t id = 100; id < 300; ++id) data.jobs.push_back(TopJobOf(id, "x", v1::JOB_STATE_QUEUED, ""));
  for (const uint64_t chosen : {12, 150, 299}) {
    EXPECT_THAT(PlainText(TopFrame(data, {.chosen_job = chosen}, kNow, kSmall)),
                HasSubstr(fmt::format("> {:>3}  ", chosen)));
  }
}

/// The job of Cluster() with curves, stages and a log.
TopData WithOpenJob() {
  auto data = Cluster();
  data.job = TopJob{.total_epochs = 5};
  auto& job = *data.job->job.mutable_job();
  job = data.jobs[0];
  auto& step = *job.mutable_last_step();
  step.mutable_loader()->set_interval_seconds(2);
  auto& times = *step.mutable_times();
  times.set_steps(5);
  times.set_input_seconds(0.1);
  times.set_forward_seconds(0.6);
  times.set_backward_seconds(1);
  times.set_communication_seconds(0.2);
  times.set_optimizer_seconds(0.06);
  for (const auto& [name, last] : {std::pair("loss", 4.0), {"top1", 0.5}, {"images_per_second", 800.0}}) {
    auto& series = *data.job->metrics.add_series();
    series.set_name(name);
    for (int i = 0; i <= 4; ++i) {
      auto& point = *series.add_points();
      point.set_x(i);
      point.set_min(last * i / 4);
      point.set_max(last * i / 4);
      point.set_last(last * i / 4);
    }
  }
  for (uint64_t i = 1; i <= 20; ++i) {
    auto line = Line(0, i, fmt::format("step {}", i));
    line.set_time_us(kNow);
    data.job->lines.push_back(line);
  }
  return data;
}

TEST(TopView, ARunOfWhichNobodyKnowsHowLongItTakesHasADash) {
  auto data = Cluster();
  const auto eta_of = [](const TopData& shown) {
    for (const auto& line : LinesOf(TopFrame(shown, {}, kNow, kSmall))) {
      if (line.find("rn50") != std::string::npos && line.find("RUNNING") != std::string::npos)
        return line.substr(line.find_last_of(' ') + 1);
    }
    return std::string();
  };
  EXPECT_EQ(eta_of(data), "1m02s");
  data.jobs[0].mutable_last_step()->set_eta_seconds(0);
  EXPECT_EQ(eta_of(data), "-");
}

TEST(TopView, AStartThatHasReportedNothingYetHasADashForItsSpeed) {
  auto data = Cluster();
  data.jobs[0].mutable_last_step()->clear_images_per_second();
  EXPECT_THAT(PlainText(TopFrame(data, {}, kNow, kSmall)), testing::ContainsRegex("47 % +- +1.500"));
}

TEST(TopView, AnOpenJobHasCurvesStagesRanksAndItsLastLines) {
  const std::string clock = LocalClock(kNow);
  EXPECT_EQ(
      PlainText(TopFrame(WithOpenJob(), {.view = TopState::View::kJob, .open_job = 12}, kNow, kSmall)),
      "job 12 (rn50)  RUNNING  5m00s\n"
      "  all 2 ranks train\n"
      "  #########...........   47 %  epoch 4.70/5  step 188/400  eta 1m02s\n"
      "  812 images/s  loss 1.500  top-1 25.0 %\n"
      " loss 1.500                top-1 25.0 %              images/s 812\n"
      "     4 |              ***    0.5 |              ***    800 |              ***\n"
      "       |      *********          |      *********          |      *********\n"
      "       |  *****                  |  *****                  |  *****\n"
      "     0 |***                    0 |***                    0 |***\n"
      " a step of rank 0: 400 ms              2 ranks\n"
      "  input         ..............   5 %    gpu-1  ranks 0-1  48 % busy\n"
      "  forward       ####..........  30 %\n"
      "  backward      #######.......  50 %\n"
      "  communication #.............  10 %\n"
      "  optimiser     ..............   3 %\n"
      "  other         ..............   2 %\n"
      " log\n" +
          [&] {
            std::string log;
            for (int i = 15; i <= 20; ++i) log += fmt::format("  {} [0] step {}\n", clock, i);
            return log;
          }() +
          "arrows scroll the log  / filters it  c cancels  ? help  q back\n");
}

TEST(TopView, TheLogIsScrolledAndFiltered) {
  const auto text = [](const TopState& state) {
    return PlainText(TopFrame(WithOpenJob(), state, kNow, kSmall));
  };
  EXPECT_THAT(
      text({.view = TopState::View::kJob, .open_job = 12, .lines_back = 5}),
      AllOf(HasSubstr("log, 5 lines further down"), HasSubstr("step 15\n"), Not(HasSubstr("step 16\n"))));
  EXPECT_THAT(text({.view = TopState::View::kJob, .open_job = 12, .log_filter = "STEP 1"}),
              AllOf(HasSubstr("step 14\n"), HasSubstr("step 19\n"), Not(HasSubstr("step 20\n"))));
}

TEST(TopView, AJobWithoutFiguresTellsItsStory) {
  auto data = Cluster();
  data.job = TopJob{};
  *data.job->job.mutable_job() = data.jobs[1];
  auto event = StateEvent(v1::JOB_STATE_UNSPECIFIED, v1::JOB_STATE_QUEUED, "submitted");
  event.set_time_us(kNow);
  *data.job->job.add_history() = event;
  EXPECT_THAT(
      LinesOf(TopFrame(data, {.view = TopState::View::kJob, .open_job = 13}, kNow, kSmall)),
      testing::IsSupersetOf({std::string("job 13 (big)  QUEUED  for 10m00s"),
                             std::string("  needs 4 nodes; 2 are there"), std::string(" what happened"),
                             "  " + LocalClock(kNow) + " QUEUED: submitted (scheduler)",
                             std::string("  nothing yet")}));
}

TEST(TopView, DevicesThatAnotherJobHasByNowAreNotThoseOfAnEndedOne) {
  auto data = WithOpenJob();
  const TopState state{.view = TopState::View::kJob, .open_job = 12};
  data.job->job.mutable_job()->set_state(v1::JOB_STATE_COMPLETED);
  for (auto& device : *data.nodes[0].mutable_devices()) device.set_job_id(13);
  EXPECT_THAT(PlainText(TopFrame(data, state, kNow, kSmall)),
              AllOf(HasSubstr("gpu-1  ranks 0-1"), Not(HasSubstr("% busy"))));
}

TEST(TopView, ProgressIsCutOff) {
  auto data = Cluster();
  *data.jobs[0].mutable_last_step() = StepEvent(399, 400).step();
  data.job = TopJob{};
  *data.job->job.mutable_job() = data.jobs[0];
  EXPECT_THAT(PlainText(TopFrame(data, {}, kNow, kSmall)), HasSubstr(" 99 %  "));
  EXPECT_THAT(PlainText(TopFrame(data, {.view = TopState::View::kJob, .open_job = 12}, kNow, kSmall)),
              HasSubstr(" 99 %  "));
}

TEST(TopView, AnOpenJobThatWasDeletedIsSaidToBeGone) {
  auto data = WithOpenJob();
  data.job_problem = "there is no job 12";
  EXPECT_THAT(PlainText(TopFrame(data, {.view = TopState::View::kJob, .open_job = 12}, kNow, kSmall)),
              HasSubstr("there is no job 12; this is what it was last\njob 12 (rn50)"));
}

TEST(TopView, AJobThatThereIsNotIsSaid) {
  auto data = Cluster();
  data.job_problem = "no job has the number 99";
  EXPECT_THAT(PlainText(TopFrame(data, {.view = TopState::View::kJob, .open_job = 99}, kNow, kSmall)),
              HasSubstr("job 99\n  no job has the number 99\n"));
}

TEST(TopView, TheLastLineAsksAndTells) {
  auto data = Cluster();
  data.message = "job 12 (rn50) is being cancelled";
  data.message_us = kNow;
  const auto last = [&](const TopState& state, int64_t now_us) {
    return PlainText({TopFooter(data, state, now_us)});
  };
  EXPECT_EQ(last({}, kNow + 1'000'000), "job 12 (rn50) is being cancelled\n");
  EXPECT_THAT(last({}, kNow + 60'000'000), HasSubstr("? help")) << "not for ever";
  EXPECT_EQ(last({.prompt = TopState::Prompt::kCancel, .asked_title = "job 12 (rn50)"}, kNow),
            "cancel job 12 (rn50)?  y: at once   s: save a checkpoint first   other keys: no\n");
  EXPECT_THAT(last({.filter = "rn"}, kNow + 60'000'000), HasSubstr("only 'rn'; Esc shows all"));
}

TEST(FramePainter, WritesOnlyLinesThatChanged) {
  FramePainter painter(/*color=*/false);
  const Look look{.width = 10, .height = 3};
  EXPECT_EQ(painter.Paint({{Cell("a")}, {Cell("b")}, {Cell("c")}}, look),
            "\x1b[2J\x1b[1;1Ha\x1b[K\x1b[2;1Hb\x1b[K\x1b[3;1Hc\x1b[K");
  EXPECT_EQ(painter.Paint({{Cell("a")}, {Cell("B")}, {Cell("c")}}, look), "\x1b[2;1HB\x1b[K");
  EXPECT_EQ(painter.Paint({{Cell("a")}}, look), "\x1b[2;1H\x1b[J");
  EXPECT_EQ(painter.Paint({{Cell("a")}}, look), "");
  painter.Forget();
  EXPECT_EQ(painter.Paint({{Cell("0123456789")}}, look), "\x1b[2J\x1b[1;1H01234567…\x1b[K");
}

TEST(FramePainter, AnothersEscapeSequencesDoNothing) {
  FramePainter painter(/*color=*/true);
  EXPECT_EQ(painter.Paint({{Cell("\x1b[2J", Style::kBad)}}, {.width = 20, .height = 1}),
            "\x1b[2J\x1b[1;1H\x1b[31m [2J\x1b[0m\x1b[K");
}

}  // namespace
}  // namespace imgd::cli
