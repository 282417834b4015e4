// From what ranks report to the text of /metrics.
#include "agent/metrics.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <set>

#include "agent/run_meter.h"
#include "agent/testing/step_events.h"
#include "agent/testing/temp_dir.h"

namespace imgd {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;
using testing::UnorderedElementsAre;

void Append(const TempDir& dir, uint32_t local_rank, const v1::TrainerEvent& event) {
  std::ofstream(RunDir{dir.path()}.Events(local_rank), std::ios::binary | std::ios::app) << EventFrame(event);
}

// --- adding up ---

TEST(RunMeter, AddsUpWhatEachRankReports) {
  const TempDir dir;
  RunMeter meter(RunDir{dir.path()}, 2);
  EXPECT_TRUE(meter.Read(1 << 20)) << "there is no file yet";
  EXPECT_FALSE(meter.ranks()[0].has_step);
  Append(dir, 0, StepEvent(1, 10, 640, 3));
  Append(dir, 0, StepEvent(2, 20, 641, 1.5));
  Append(dir, 1, StepEvent(1, 10, 7, 2));
  EXPECT_TRUE(meter.Read(1 << 20));
  const auto& first = meter.ranks()[0];
  EXPECT_EQ(first.images, 1281) << "whole images, though they come as a speed";
  EXPECT_EQ(first.step, 20);
  EXPECT_DOUBLE_EQ(first.images_per_second, 641 / 1.5);
  EXPECT_DOUBLE_EQ(first.loss, 2.5);
  EXPECT_DOUBLE_EQ(first.read_seconds, 2.25);
  EXPECT_DOUBLE_EQ(first.decode_seconds, 4.5);
  EXPECT_DOUBLE_EQ(first.augment_seconds, 0.5625);
  EXPECT_DOUBLE_EQ(first.idle_seconds, 0.28125);
  EXPECT_DOUBLE_EQ(first.wait_seconds, 1.125);
  EXPECT_EQ(first.loader_images, 1283);
  EXPECT_EQ(first.loader_bytes, 2000);
  EXPECT_DOUBLE_EQ(first.step_input_seconds, 0.140625);
  EXPECT_DOUBLE_EQ(first.forward_seconds, 1.125);
  EXPECT_DOUBLE_EQ(first.backward_seconds, 2.25);
  EXPECT_DOUBLE_EQ(first.communication_seconds, 0.5625);
  EXPECT_DOUBLE_EQ(first.optimizer_seconds, 0.28125);
  EXPECT_EQ(meter.ranks()[1].images, 7);
}

TEST(RunMeter, ATrainerThatBeginsAnewInTheSameRunOnlyAdds) {
  const TempDir dir;
  RunMeter meter(RunDir{dir.path()}, 1);
  RankFigures before;
  v1::TrainerEvent started;
  started.set_sequence(3);
  started.mutable_started()->set_start_step(5);
  for (const auto& event :
       {StepEvent(1, 10, 640, 3), StepEvent(2, 20, 640, 3), started, StepEvent(4, 6, 64, 0.25)}) {
    Append(dir, 0, event);
    ASSERT_TRUE(meter.Read(1 << 20));
    const auto& now = meter.ranks()[0];
    EXPECT_GE(now.images, before.images);
    EXPECT_GE(now.decode_seconds, before.decode_seconds);
    EXPECT_GE(now.wait_seconds, before.wait_seconds);
    before = now;
  }
  EXPECT_EQ(before.images, 1344);
  EXPECT_DOUBLE_EQ(before.decode_seconds, 6.25);
  EXPECT_EQ(before.step, 6) << "a gauge: where it is now";
}

TEST(RunMeter, AReportThatCannotBeLeavesTheSumsAlone) {
  RankFigures rank;
  AddReport(StepEvent(1, 1, 64, 1).step(), rank);
  auto report = StepEvent(2, 2, 64, 1).step();
  report.mutable_loader()->set_decode_seconds(-3);
  report.mutable_loader()->set_read_seconds(std::nan(""));
  report.set_rank_images_per_second(std::numeric_limits<double>::infinity());
  AddReport(report, rank);
  EXPECT_DOUBLE_EQ(rank.decode_seconds, 1);
  EXPECT_DOUBLE_EQ(rank.read_seconds, 0.5);
  EXPECT_EQ(rank.images, 64);
}

TEST(RunMeter, ALongFileIsReadInPartsAndCompleteAtItsEnd) {
  const TempDir dir;
  for (uint64_t i = 1; i <= 5; ++i) Append(dir, 0, StepEvent(i, i, 64, 1));
  RunMeter meter(RunDir{dir.path()}, 1);
  EXPECT_FALSE(meter.Read(1));
  EXPECT_EQ(meter.ranks()[0].images, 64);
  EXPECT_FALSE(meter.is_complete());
  while (!meter.Read(1)) {
  }
  EXPECT_TRUE(meter.is_complete());
  EXPECT_EQ(meter.ranks()[0].images, 320);
  Append(dir, 0, StepEvent(6, 6, 64, 1));
  EXPECT_FALSE(meter.Read(1));
  EXPECT_TRUE(meter.is_complete()) << "a moment behind is complete enough";
}

// --- families ---

/// Label values in their order, and the value.
using Series = std::vector<std::pair<std::vector<std::string>, double>>;

Series SeriesOf(const NodeSnapshot& node, const std::string& name) {
  Series series;
  for (const auto& family : ToFamilies(node)) {
    if (family.name != name) continue;
    for (const auto& metric : family.metric) {
      auto& [labels, value] = series.emplace_back();
      for (const auto& label : metric.label) labels.push_back(label.value);
      value = family.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value;
    }
  }
  return series;
}

v1::TrainerEvent ValidationEvent(double loss, double top1) {
  v1::TrainerEvent event;
  event.mutable_epoch()->set_val_loss(loss);
  event.mutable_epoch()->set_val_top1(top1);
  return event;
}

v1::TrainerEvent WrittenEvent(int64_t time_us, uint64_t bytes) {
  v1::TrainerEvent event;
  event.set_time_us(time_us);
  event.mutable_checkpoint()->set_size_bytes(bytes);
  event.mutable_checkpoint()->set_write_seconds(static_cast<double>(bytes) / 1e3);
  return event;
}

RankFigures Rank(uint64_t step, double images) {
  RankFigures rank;
  AddReport(StepEvent(1, step, images, 2).step(), rank);
  return rank;
}

GpuReading FullReading() {
  return {.busy_ratio = 0.97,
          .memory_used_bytes = 1 << 30,
          .power_watts = 650,
          .temperature_celsius = 61,
          .sm_clock_hertz = 1.98e9,
          .energy_joules = 1e9,
          .memory_clock_hertz = 2.6e9,
          .pcie_sent_bytes = 1000,
          .pcie_received_bytes = 2000,
          .nvlink_sent_bytes = 3000,
          .nvlink_received_bytes = 4000,
          .throttle_reasons = 0x44,
          .corrected_ecc_errors = 3,
          .uncorrected_ecc_errors = 0,
          .hardware_xids = 1};
}

/// Two runs of eight ranks each, and eight GPUs.
NodeSnapshot FullNode() {
  NodeSnapshot node;
  for (const uint64_t job : {7, 8}) {
    node.runs.push_back({{JobId(job), Generation(2), "c1"}, 8, {8, Rank(100, 256)}});
    node.runs.back().ranks[0].validation = {2.5, 0.4};
    node.runs.back().ranks[0].checkpoint = {1e9, 1e8, 3};
    node.runs.back().ranks[0].h2d_seconds = 1;
    node.runs.back().ranks[0].eta_seconds = 60;
  }
  for (uint32_t i = 0; i < 8; ++i) {
    auto& gpu = node.gpus.emplace_back();
    gpu.set_index(i);
    gpu.set_uuid(fmt::format("GPU-{}", i));
    node.readings.push_back(FullReading());
  }
  node.held = {0, 1};
  node.runs[0].devices = {0};
  node.runs[1].devices = {1};
  node.machine = {1000, 9000, 64e9, 32e9, 1e12, 5e11, 7e9, 8e9};
  return node;
}

TEST(Metrics, AreSumsOverTheNodesRanks) {
  NodeSnapshot node;
  node.runs.push_back({{JobId(7), Generation(2), "c1"}, 2, {Rank(100, 640), Rank(101, 64)}});
  const std::vector<std::string> labels = {"c1", "7", "2"};
  const auto value = [&](const char* name) { return SeriesOf(node, name); };
  EXPECT_THAT(value("imgd_job_ranks"), ElementsAre(Pair(labels, 2)));
  EXPECT_THAT(value("imgd_job_step"), ElementsAre(Pair(labels, 101)));
  EXPECT_THAT(value("imgd_job_loss"), ElementsAre(Pair(labels, 2.5)));
  EXPECT_THAT(value("imgd_job_images_total"), ElementsAre(Pair(labels, 704)));
  EXPECT_THAT(value("imgd_job_images_per_second"), ElementsAre(Pair(labels, 352)));
  EXPECT_THAT(value("imgd_job_loader_images_total"), ElementsAre(Pair(labels, 706)));
  EXPECT_THAT(value("imgd_job_loader_bytes_total"), ElementsAre(Pair(labels, 2000)));
  std::map<std::string, double> seconds;
  for (const auto& [with_stage, sum] : value("imgd_job_loader_seconds_total"))
    seconds[with_stage.back()] = sum;
  EXPECT_THAT(seconds, UnorderedElementsAre(Pair("read", DoubleEq(2)), Pair("decode", DoubleEq(4)),
                                            Pair("augment", DoubleEq(0.5)), Pair("idle", DoubleEq(0.25))));
  EXPECT_THAT(value("imgd_job_input_wait_seconds_total"), ElementsAre(Pair(labels, 1)))
      << "of the ranks, not of the loaders' threads";
  seconds.clear();
  for (const auto& [with_part, sum] : value("imgd_job_step_seconds_total")) seconds[with_part.back()] = sum;
  EXPECT_THAT(seconds,
              UnorderedElementsAre(Pair("input", DoubleEq(0.125)), Pair("forward", DoubleEq(1)),
                                   Pair("backward", DoubleEq(2)), Pair("communication", DoubleEq(0.5)),
                                   Pair("optimizer", DoubleEq(0.25))));
  EXPECT_THAT(value("imgd_job_slowest_rank"), ElementsAre(Pair(labels, 1)));
  EXPECT_THAT(value("imgd_job_slowest_rank_ratio"), ElementsAre(Pair(labels, 1.5)));
  for (auto& rank : node.runs[0].ranks) rank.spread.Clear();
  EXPECT_THAT(value("imgd_job_slowest_rank"), IsEmpty()) << "a rank alone is not compared";
  EXPECT_THAT(value("imgd_job_slowest_rank_ratio"), IsEmpty());
}

TEST(Metrics, HowFarTheTrainingIsAndHowWellItGoes) {
  NodeSnapshot node;
  node.runs.push_back({{JobId(7), Generation(2), "c1"}, 2, {Rank(100, 640), Rank(100, 64)}});
  const auto value = [&](const char* name) {
    const auto series = SeriesOf(node, name);
    return series.size() == 1 ? series[0].second : -1;
  };
  EXPECT_EQ(value("imgd_job_validation_top1_ratio"), -1) << "before the first pass";
  EXPECT_EQ(value("imgd_job_checkpoint_bytes"), -1) << "before the first checkpoint";
  auto report = StepEvent(2, 110, 64, 1);
  report.mutable_step()->set_epoch(1.5);
  report.mutable_step()->set_top1(0.25);
  report.mutable_step()->set_learning_rate(0.1);
  report.mutable_step()->set_eta_seconds(90);
  for (const auto& event : {report, ValidationEvent(3, 0.2), ValidationEvent(2, 0.5),
                            WrittenEvent(1'500'000, 1000), WrittenEvent(2'500'000, 1001)})
    TakeEvent(event, node.runs[0].ranks[0]);
  EXPECT_EQ(value("imgd_job_epoch"), 1.5);
  EXPECT_EQ(value("imgd_job_top1_ratio"), 0.25);
  EXPECT_EQ(value("imgd_job_learning_rate"), 0.1);
  EXPECT_EQ(value("imgd_job_left_seconds"), 90);
  EXPECT_EQ(value("imgd_job_validation_loss"), 2);
  EXPECT_EQ(value("imgd_job_validation_top1_ratio"), 0.5);
  EXPECT_EQ(value("imgd_job_checkpoint_timestamp_seconds"), 2.5);
  EXPECT_EQ(value("imgd_job_checkpoint_bytes"), 1001);
  EXPECT_EQ(value("imgd_job_checkpoint_write_seconds"), 1.001);
  EXPECT_EQ(value("imgd_job_h2d_seconds_total"), -1) << "without a GPU";
  report.mutable_step()->mutable_times()->set_h2d_seconds(0.5);
  TakeEvent(report, node.runs[0].ranks[0]);
  TakeEvent(report, node.runs[0].ranks[1]);
  EXPECT_EQ(value("imgd_job_h2d_seconds_total"), 1);
}

TEST(Metrics, OfEachGpuWhetherItIsHeldHeldBackOrBroken) {
  auto node = FullNode();
  node.gpus.resize(3);
  node.held = {1};
  node.readings = {FullReading(), FullReading(), FullReading()};
  node.readings[2] = {.error = "power can't be read: Unknown Error"};
  using testing::Contains;
  const auto gpu = [](const char* index, double value) {
    return Pair(ElementsAre(index, std::string("GPU-") + index), value);
  };
  EXPECT_THAT(SeriesOf(node, "imgd_gpu_allocated"), ElementsAre(gpu("0", 0), gpu("1", 1), gpu("2", 0)));
  EXPECT_THAT(SeriesOf(node, "imgd_gpu_reading_failed"), ElementsAre(gpu("0", 0), gpu("1", 0), gpu("2", 1)));
  EXPECT_THAT(SeriesOf(node, "imgd_gpu_ecc_corrected_errors_total"), ElementsAre(gpu("0", 3), gpu("1", 3)));
  EXPECT_THAT(SeriesOf(node, "imgd_gpu_ecc_uncorrected_errors_total"), ElementsAre(gpu("0", 0), gpu("1", 0)))
      << "none is known; of a GPU without ECC nothing is";
  const auto throttled = SeriesOf(node, "imgd_gpu_throttled");
  EXPECT_THAT(throttled, SizeIs(10));
  EXPECT_THAT(throttled, Contains(Pair(ElementsAre("0", "GPU-0", "power_cap"), 1)));
  EXPECT_THAT(throttled, Contains(Pair(ElementsAre("0", "GPU-0", "hardware"), 0)));
  EXPECT_THAT(SeriesOf(node, "imgd_gpu_xid_errors_total"),
              Contains(Pair(ElementsAre("1", "GPU-1", "hardware"), 1)));
}

TEST(Metrics, AJobsRanksAreTheLeastTheMeanAndTheMost) {
  auto node = FullNode();
  node.readings[0].busy_ratio = 0.25;
  node.readings[3].busy_ratio.reset();
  node.readings[4].is_old = true;
  node.runs[0].devices = {0, 1, 3, 4};
  node.runs.resize(1);
  auto& spread = node.runs[0].ranks[0].spread;
  spread.set_own_least_seconds(1);
  spread.set_own_mean_seconds(2);
  spread.set_own_most_seconds(4);
  spread.set_wait_least_seconds(0.5);
  spread.set_wait_mean_seconds(1.5);
  spread.set_wait_most_seconds(3);
  const auto of = [&node](const char* name) {
    std::map<std::string, double> out;
    for (const auto& [labels, value] : SeriesOf(node, name)) out[labels.back()] = value;
    return out;
  };
  EXPECT_THAT(of("imgd_job_rank_own_seconds"),
              UnorderedElementsAre(Pair("min", 1), Pair("mean", 2), Pair("max", 4)));
  EXPECT_THAT(of("imgd_job_rank_wait_seconds"),
              UnorderedElementsAre(Pair("min", 0.5), Pair("mean", 1.5), Pair("max", 3)));
  EXPECT_THAT(of("imgd_job_gpu_busy_ratio"),
              UnorderedElementsAre(Pair("min", 0.25), Pair("mean", DoubleEq(0.61)), Pair("max", 0.97)))
      << "of two: of the others nobody knows it now";
  spread.Clear();
  node.runs[0].devices.clear();
  for (const char* name :
       {"imgd_job_rank_own_seconds", "imgd_job_rank_wait_seconds", "imgd_job_gpu_busy_ratio"})
    EXPECT_THAT(SeriesOf(node, name), IsEmpty()) << name;
}

TEST(Metrics, OfACommandThereIsNothingButItsRanks) {
  NodeSnapshot node;
  node.runs.push_back({{JobId(7), Generation(1), "c1"}, 2, {RankFigures(), RankFigures()}, /*trains=*/false});
  const auto families = ToFamilies(node);
  ASSERT_THAT(families, SizeIs(2));
  EXPECT_EQ(families[0].name, "imgd_job_ranks");
  EXPECT_EQ(families[1].name, "imgd_node_ranks");
}

TEST(Metrics, KeepToTheRules) {
  std::map<std::string, int> series_of_job;
  std::map<std::string, int> series_of_gpu;
  int series_of_node = 0;
  std::set<std::string> names;
  for (const auto& family : ToFamilies(FullNode())) {
    const bool is_counter = family.type == prometheus::MetricType::Counter;
    EXPECT_THAT(family.name, testing::MatchesRegex("imgd_(job|gpu|node)_[a-z0-9_]+"));
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_EQ(family.name.ends_with("_total"), is_counter) << family.name;
    EXPECT_NE(family.help, "") << family.name;
    std::set<std::vector<prometheus::ClientMetric::Label>> seen;
    for (const auto& metric : family.metric) {
      EXPECT_TRUE(seen.insert(metric.label).second) << family.name << ": the same labels twice";
      EXPECT_TRUE(std::isfinite(is_counter ? metric.counter.value : metric.gauge.value)) << family.name;
      for (const auto& label : metric.label) {
        EXPECT_TRUE(label.name != "job" && label.name != "instance") << "Prometheus' own";
        if (label.name == "job_id") ++series_of_job[label.value];
        if (label.name == "gpu") ++series_of_gpu[label.value];
      }
      if (family.name.starts_with("imgd_node_")) ++series_of_node;
    }
  }
  EXPECT_THAT(series_of_job, ElementsAre(Pair("7", 38), Pair("8", 38)))
      << "as docs/metrics.md says; 40 at most";
  EXPECT_THAT(series_of_gpu, SizeIs(8));
  for (const auto& [gpu, count] : series_of_gpu) EXPECT_LE(count, 30);
  EXPECT_LE(series_of_node, 60);
}

TEST(Metrics, AJobIsOnTheNodeOfRank0AloneForAllItsRanks) {
  NodeSnapshot node;
  node.runs.push_back({{JobId(7), Generation(2), "c1"}, 2, {Rank(100, 640), Rank(100, 640)}});
  const auto value = [&node](const char* name) {
    const auto series = SeriesOf(node, name);
    return series.size() == 1 ? series[0].second : -1;
  };
  const double alone = value("imgd_job_images_total");
  const double waited = value("imgd_job_input_wait_seconds_total");
  node.runs[0].ranks_elsewhere = 6;
  EXPECT_EQ(value("imgd_job_ranks"), 8);
  EXPECT_EQ(value("imgd_job_images_total"), 4 * alone) << "ranks elsewhere train on as many";
  EXPECT_EQ(value("imgd_job_input_wait_seconds_total"), 4 * waited);
  EXPECT_EQ(value("imgd_node_ranks"), 2);
  node.runs[0].has_rank_0 = false;
  for (const auto& family : ToFamilies(node))
    EXPECT_FALSE(family.name.starts_with("imgd_job_")) << family.name;
  EXPECT_EQ(value("imgd_node_ranks"), 2) << "of the node, not of a job";
}

TEST(Metrics, WhatNobodyKnowsIsLeftOut) {
  EXPECT_THAT(ToFamilies({}), SizeIs(1)) << "that no rank runs is known";
  NodeSnapshot node;
  node.runs.push_back({{JobId(7), Generation(1), "c1"}, 1, {RankFigures()}});
  EXPECT_THAT(SeriesOf(node, "imgd_job_images_total"), ElementsAre(Pair(testing::_, 0)));
  EXPECT_THAT(SeriesOf(node, "imgd_job_loader_seconds_total"), SizeIs(4));
  for (const auto* name : {"imgd_job_step", "imgd_job_loss", "imgd_job_images_per_second"}) {
    EXPECT_THAT(SeriesOf(node, name), IsEmpty()) << name << ": nothing was reported yet";
  }
  node.runs[0].ranks[0] = Rank(3, 64);
  node.runs[0].ranks[0].loss = std::nan("");
  EXPECT_THAT(SeriesOf(node, "imgd_job_loss"), IsEmpty());
  EXPECT_THAT(SeriesOf(node, "imgd_job_step"), SizeIs(1));
}

TEST(Metrics, AReadingThatFailsOrIsOldIsNoReading) {
  auto node = FullNode();
  node.gpus.resize(3);
  node.readings = {FullReading(), FullReading(), FullReading()};
  node.readings[1].power_watts.reset();
  node.readings[2].is_old = true;
  EXPECT_THAT(SeriesOf(node, "imgd_gpu_power_watts"), ElementsAre(Pair(ElementsAre("0", "GPU-0"), 650)));
  EXPECT_THAT(SeriesOf(node, "imgd_gpu_busy_ratio"),
              ElementsAre(Pair(ElementsAre("0", "GPU-0"), 0.97), Pair(ElementsAre("1", "GPU-1"), 0.97)));
  EXPECT_THAT(SeriesOf(node, "imgd_gpu_memory_used_bytes"), SizeIs(2));
  EXPECT_THAT(SeriesOf(node, "imgd_gpu_temperature_celsius"), SizeIs(2));
  node.readings.clear();
  EXPECT_THAT(SeriesOf(node, "imgd_gpu_busy_ratio"), IsEmpty()) << "before the first reading";
}

TEST(Metrics, AnotherStartOrAnotherClustersJobIsAnotherSeries) {
  NodeSnapshot node;
  node.runs.push_back({{JobId(7), Generation(1), "c1"}, 1, {Rank(5, 1)}});
  node.runs.push_back({{JobId(7), Generation(2), "c1"}, 1, {Rank(5, 2)}});
  node.runs.push_back({{JobId(7), Generation(1), "c2"}, 1, {Rank(5, 3)}});
  EXPECT_THAT(SeriesOf(node, "imgd_job_images_total"),
              ElementsAre(Pair(ElementsAre("c1", "7", "1"), 1), Pair(ElementsAre("c1", "7", "2"), 2),
                          Pair(ElementsAre("c2", "7", "1"), 3)));
}

TEST(Metrics, TheTextKeepsSmallDifferencesOfLargeSums) {
  NodeSnapshot node;
  node.runs.push_back({{JobId(7), Generation(1), "c1"}, 1, {RankFigures()}});
  node.runs[0].ranks[0].loader_bytes = 123456789012345;
  node.runs[0].ranks[0].decode_seconds = 86400.125;
  const auto text = ToMetricsText(node);
  const auto value_of = [&](const std::string& series) {
    const auto at = text.find(series + " ");
    return at == std::string::npos ? -1.0 : std::strtod(text.c_str() + at + series.size(), nullptr);
  };
  const std::string labels = R"(cluster="c1",job_id="7",generation="1")";
  EXPECT_EQ(value_of("\nimgd_job_loader_bytes_total{" + labels + "}"), 123456789012345);
  EXPECT_EQ(value_of("\nimgd_job_loader_seconds_total{" + labels + ",stage=\"decode\"}"), 86400.125);
  EXPECT_THAT(text, testing::HasSubstr("# TYPE imgd_job_loader_seconds_total counter\n"));
  EXPECT_TRUE(text.ends_with("\n"));
}

TEST(Metrics, PromtoolFindsNothingToComplainOf) {
  if (::system("promtool --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "promtool is not installed";
  const TempDir dir;
  const auto file = dir.Write("metrics", ToMetricsText(FullNode()));
  const auto said = dir / "said";
  EXPECT_EQ(
      ::system(fmt::format("promtool check metrics <{} >{} 2>&1", file.native(), said.native()).c_str()), 0);
  EXPECT_EQ(ReadFile(said).value_or("?"), "");
}

}  // namespace
}  // namespace imgd
