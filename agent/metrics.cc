#include "agent/metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

namespace imgd {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using MetricLabels = std::vector<prometheus::ClientMetric::Label>;
using MaybeValue = std::optional<double>;

double SumOf(const LiveRun& run, double RankFigures::*figure) {
  double sum = 0;
  for (const auto& rank : run.ranks) sum += rank.*figure;
  return sum;
}

/// The rank that is furthest; null before the first report. Ranks report after the same steps, so that it is
/// also the one that reported last.
const RankFigures* FurthestRank(const LiveRun& run) {
  const RankFigures* furthest = nullptr;
  for (const auto& rank : run.ranks) {
    if (rank.has_step && (furthest == nullptr || rank.step > furthest->step)) furthest = &rank;
  }
  return furthest;
}

MaybeValue StepOf(const LiveRun& run) {
  const auto* rank = FurthestRank(run);
  return rank == nullptr ? MaybeValue() : static_cast<double>(rank->step);
}

MaybeValue LossOf(const LiveRun& run) {
  const auto* rank = FurthestRank(run);
  return rank == nullptr ? MaybeValue() : rank->loss;
}

MaybeValue SpeedOf(const LiveRun& run) {
  return FurthestRank(run) == nullptr ? MaybeValue() : SumOf(run, &RankFigures::images_per_second);
}

MaybeValue SlowestRankOf(const LiveRun& run) {
  const auto* rank = FurthestRank(run);
  return rank == nullptr || rank->spread.ranks() == 0 ? MaybeValue() : rank->spread.slowest_rank();
}

MaybeValue SlownessOf(const LiveRun& run) {
  const auto* rank = FurthestRank(run);
  if (rank == nullptr || !(rank->spread.own_mean_seconds() > 0)) return MaybeValue();
  return rank->spread.own_most_seconds() / rank->spread.own_mean_seconds();
}

struct RunMetric {
  const char* name;
  MetricType type;
  const char* help;
  MaybeValue (*value)(const LiveRun&);
};

constexpr RunMetric kRunMetrics[] = {
    {"imgd_job_ranks", MetricType::Gauge, "Ranks of the job that run on this node.",
     [](const LiveRun& run) { return MaybeValue(run.running_ranks); }},
    {"imgd_job_step", MetricType::Gauge,
     "Optimiser steps done since the job's beginning, over all its starts.", StepOf},
    {"imgd_job_loss", MetricType::Gauge, "Mean training loss over the whole gang, in the latest report.",
     LossOf},
    {"imgd_job_images_total", MetricType::Counter,
     "Images that this node's ranks trained on, each as often as it was seen.",
     [](const LiveRun& run) { return MaybeValue(SumOf(run, &RankFigures::images)); }},
    {"imgd_job_images_per_second", MetricType::Gauge,
     "Training speed of this node's ranks in their latest report, without validation and checkpoints.",
     SpeedOf},
    {"imgd_job_loader_images_total", MetricType::Counter,
     "Images that the data loaders of this node's ranks made for training.",
     [](const LiveRun& run) { return MaybeValue(SumOf(run, &RankFigures::loader_images)); }},
    {"imgd_job_slowest_rank", MetricType::Gauge,
     "Rank of the whole gang whose own work took longest, in the latest report.", SlowestRankOf},
    {"imgd_job_slowest_rank_ratio", MetricType::Gauge,
     "How many times the mean over the gang this rank's own work took.", SlownessOf},
    {"imgd_job_loader_bytes_total", MetricType::Counter, "Bytes of the image files that these loaders read.",
     [](const LiveRun& run) { return MaybeValue(SumOf(run, &RankFigures::loader_bytes)); }},
};

/// What time went into, summed over a rank's reports.
struct Stage {
  const char* name;
  double RankFigures::*seconds;
};

constexpr Stage kLoaderStages[] = {
    {"read", &RankFigures::read_seconds},       {"decode", &RankFigures::decode_seconds},
    {"augment", &RankFigures::augment_seconds}, {"idle", &RankFigures::idle_seconds},
    {"wait", &RankFigures::wait_seconds},
};

constexpr Stage kStepParts[] = {
    {"input", &RankFigures::step_input_seconds},    {"forward", &RankFigures::forward_seconds},
    {"backward", &RankFigures::backward_seconds},   {"communication", &RankFigures::communication_seconds},
    {"optimizer", &RankFigures::optimizer_seconds},
};

struct GpuMetric {
  const char* name;
  const char* help;
  MaybeValue (*value)(const GpuReading&);
};

constexpr GpuMetric kGpuMetrics[] = {
    {"imgd_gpu_busy_ratio", "Share of time that a kernel ran on the GPU, from 0 to 1.",
     [](const GpuReading& gpu) { return gpu.busy_ratio; }},
    {"imgd_gpu_memory_used_bytes", "Memory of the GPU that is in use.",
     [](const GpuReading& gpu) {
       return gpu.memory_used_bytes ? MaybeValue(static_cast<double>(*gpu.memory_used_bytes)) : MaybeValue();
     }},
    {"imgd_gpu_power_watts", "Power that the GPU draws.",
     [](const GpuReading& gpu) { return gpu.power_watts; }},
    {"imgd_gpu_temperature_celsius", "Temperature of the GPU's core.",
     [](const GpuReading& gpu) { return gpu.temperature_celsius; }},
};

/// Another start or another cluster's job of the same number is another series. Not `job`, which is
/// Prometheus' own label of whom it scrapes.
MetricLabels LabelsOf(const RunKey& key) {
  return {{"cluster", key.cluster},
          {"job_id", std::to_string(key.job.value())},
          {"generation", std::to_string(key.generation.value())}};
}

/// Families in the order in which they are begun.
class Families {
 public:
  void Begin(const char* name, MetricType type, const char* help) {
    DropEmpty();
    list_.push_back({.name = name, .help = help, .type = type});
  }

  void Add(MetricLabels labels, MaybeValue value) {
    if (!value || !std::isfinite(*value)) return;
    auto& metric = list_.back().metric.emplace_back();
    metric.label = std::move(labels);
    (list_.back().type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = *value;
  }

  std::vector<MetricFamily> Take() {
    DropEmpty();
    return std::move(list_);
  }

 private:
  void DropEmpty() {
    if (!list_.empty() && list_.back().metric.empty()) list_.pop_back();
  }

  std::vector<MetricFamily> list_;
};

void AddStages(const std::vector<LiveRun>& runs, const char* label, std::span<const Stage> stages,
               Families& families) {
  for (const auto& run : runs) {
    for (const auto& stage : stages) {
      auto labels = LabelsOf(run.key);
      labels.push_back({label, stage.name});
      families.Add(std::move(labels), SumOf(run, stage.seconds));
    }
  }
}

void AddRuns(const std::vector<LiveRun>& runs, Families& families) {
  for (const auto& metric : kRunMetrics) {
    families.Begin(metric.name, metric.type, metric.help);
    for (const auto& run : runs) families.Add(LabelsOf(run.key), metric.value(run));
  }
  families.Begin(
      "imgd_job_loader_seconds_total", MetricType::Counter,
      "Where the data loaders' time went: their threads read, decode, augment or are idle, and wait is the "
      "time that training stood still for input; sums over threads and over this node's ranks.");
  AddStages(runs, "stage", kLoaderStages, families);
  families.Begin("imgd_job_step_seconds_total", MetricType::Counter,
                 "Where the time of training steps went, summed over this node's ranks; communication is "
                 "waiting for other ranks.");
  AddStages(runs, "part", kStepParts, families);
}

void AddGpus(const NodeSnapshot& node, Families& families) {
  const size_t count = std::min(node.gpus.size(), node.readings.size());
  for (const auto& metric : kGpuMetrics) {
    families.Begin(metric.name, MetricType::Gauge, metric.help);
    for (size_t i = 0; i < count; ++i) {
      if (node.readings[i].is_old) continue;
      families.Add({{"gpu", std::to_string(node.gpus[i].index())}, {"uuid", node.gpus[i].uuid()}},
                   metric.value(node.readings[i]));
    }
  }
}

}  // namespace

std::vector<MetricFamily> ToFamilies(const NodeSnapshot& node) {
  Families families;
  AddRuns(node.runs, families);
  AddGpus(node, families);
  return families.Take();
}

std::string ToMetricsText(const NodeSnapshot& node) {
  std::ostringstream out;
  out.precision(std::numeric_limits<double>::max_digits10 - 1);
  prometheus::TextSerializer().Serialize(out, ToFamilies(node));
  return std::move(out).str();
}

}  // namespace imgd
