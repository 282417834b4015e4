#include "agent/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "common/metric_families.h"

namespace imgd {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using MaybeValue = std::optional<double>;

/// The rank that is furthest; null before the first report. Ranks report after the same steps, so that it is
/// also the one that reported last.
const RankFigures* FurthestRank(const LiveRun& run) {
  const RankFigures* furthest = nullptr;
  for (const auto& rank : run.ranks) {
    if (rank.has_step && (furthest == nullptr || rank.step > furthest->step)) furthest = &rank;
  }
  return furthest;
}

/// How many times this node's part the whole gang is.
double GangOverNode(const LiveRun& run) {
  return 1 + static_cast<double>(run.ranks_elsewhere) /
                 static_cast<double>(std::max<size_t>(run.ranks.size(), 1));
}

/// Over the gang, whose ranks elsewhere are taken to be as those here. A command has trained on no image,
/// which is not the same as on none so far.
MaybeValue SumOf(const LiveRun& run, double RankFigures::*figure) {
  if (!run.trains && FurthestRank(run) == nullptr) return std::nullopt;
  double sum = 0;
  for (const auto& rank : run.ranks) sum += rank.*figure;
  return sum * GangOverNode(run);
}

MaybeValue StepOf(const LiveRun& run) {
  const auto* rank = FurthestRank(run);
  return rank == nullptr ? MaybeValue() : static_cast<double>(rank->step);
}

/// A figure of the latest report.
template <double RankFigures::*figure>
MaybeValue LatestOf(const LiveRun& run) {
  const auto* rank = FurthestRank(run);
  return rank == nullptr ? MaybeValue() : rank->*figure;
}

MaybeValue LeftOf(const LiveRun& run) {
  const auto* rank = FurthestRank(run);
  return rank == nullptr || !(rank->eta_seconds > 0) ? MaybeValue() : rank->eta_seconds;
}

/// Rank 0 alone validates and writes checkpoints for all.
template <double RankFigures::Validation::*figure>
MaybeValue ValidationOf(const LiveRun& run) {
  for (const auto& rank : run.ranks) {
    if (rank.validation) return *rank.validation.*figure;
  }
  return std::nullopt;
}

template <double RankFigures::Written::*figure>
MaybeValue CheckpointOf(const LiveRun& run) {
  for (const auto& rank : run.ranks) {
    if (rank.checkpoint) return *rank.checkpoint.*figure;
  }
  return std::nullopt;
}

/// A trainer of before did not say it.
MaybeValue WriteSecondsOf(const LiveRun& run) {
  const auto seconds = CheckpointOf<&RankFigures::Written::write_seconds>(run);
  return seconds.value_or(0) > 0 ? seconds : std::nullopt;
}

/// None without a GPU.
MaybeValue CopySecondsOf(const LiveRun& run) {
  const MaybeValue seconds = SumOf(run, &RankFigures::h2d_seconds);
  return seconds.value_or(0) > 0 ? seconds : std::nullopt;
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

/// The least, the mean and the most.
using Extent = std::optional<std::array<double, 3>>;
constexpr const char* kExtent[] = {"min", "mean", "max"};

Extent OwnWorkOf(const LiveRun& run, const NodeSnapshot&) {
  const auto* rank = FurthestRank(run);
  if (rank == nullptr || rank->spread.ranks() == 0) return std::nullopt;
  const auto& of = rank->spread;
  return std::array{of.own_least_seconds(), of.own_mean_seconds(), of.own_most_seconds()};
}

Extent WaitOf(const LiveRun& run, const NodeSnapshot&) {
  const auto* rank = FurthestRank(run);
  if (rank == nullptr || rank->spread.ranks() == 0) return std::nullopt;
  const auto& of = rank->spread;
  return std::array{of.wait_least_seconds(), of.wait_mean_seconds(), of.wait_most_seconds()};
}

Extent BusyOf(const LiveRun& run, const NodeSnapshot& node) {
  std::vector<double> busy;
  for (size_t i = 0; i < std::min(node.gpus.size(), node.readings.size()); ++i) {
    const auto& reading = node.readings[i];
    if (run.devices.contains(node.gpus[i].index()) && !reading.is_old && reading.busy_ratio)
      busy.push_back(*reading.busy_ratio);
  }
  if (busy.empty()) return std::nullopt;
  const auto [least, most] = std::ranges::minmax(busy);
  return std::array{least, std::reduce(busy.begin(), busy.end()) / static_cast<double>(busy.size()), most};
}

struct ExtentMetric {
  const char* name;
  const char* help;
  Extent (*value)(const LiveRun&, const NodeSnapshot&);
};

constexpr ExtentMetric kExtentMetrics[] = {
    {"imgd_job_rank_own_seconds",
     "A step's time that the ranks of the whole gang worked themselves, in the latest report.", OwnWorkOf},
    {"imgd_job_rank_wait_seconds",
     "A step's time that the ranks of the whole gang waited for one another, in the latest report.", WaitOf},
    {"imgd_job_gpu_busy_ratio", "Share of time that a kernel ran on the job's GPUs on rank 0's node.",
     BusyOf},
};

struct RunMetric {
  const char* name;
  MetricType type;
  const char* help;
  MaybeValue (*value)(const LiveRun&);
};

constexpr RunMetric kRunMetrics[] = {
    {"imgd_job_ranks", MetricType::Gauge, "Ranks of the job, while one runs on rank 0's node.",
     [](const LiveRun& run) {
       return MaybeValue(run.running_ranks > 0 ? run.running_ranks + run.ranks_elsewhere : 0);
     }},
    {"imgd_job_step", MetricType::Gauge,
     "Optimiser steps done since the job's beginning, over all its starts.", StepOf},
    {"imgd_job_loss", MetricType::Gauge, "Mean training loss over the whole gang, in the latest report.",
     LatestOf<&RankFigures::loss>},
    {"imgd_job_top1_ratio", MetricType::Gauge,
     "Share of training images whose class was found, over the whole gang, in the latest report.",
     LatestOf<&RankFigures::top1>},
    {"imgd_job_epoch", MetricType::Gauge, "Epochs done, with the part of the present one.",
     LatestOf<&RankFigures::epoch>},
    {"imgd_job_learning_rate", MetricType::Gauge, "Learning rate of the last step.",
     LatestOf<&RankFigures::learning_rate>},
    {"imgd_job_left_seconds", MetricType::Gauge,
     "Time to the end of the training at its present speed, validations included.", LeftOf},
    {"imgd_job_validation_loss", MetricType::Gauge, "Mean loss of the latest validation pass.",
     ValidationOf<&RankFigures::Validation::loss>},
    {"imgd_job_validation_top1_ratio", MetricType::Gauge,
     "Share of validation images whose class was found in that pass.",
     ValidationOf<&RankFigures::Validation::top1>},
    {"imgd_job_checkpoint_timestamp_seconds", MetricType::Gauge,
     "When this start's latest checkpoint was complete, since 1970 UTC.",
     CheckpointOf<&RankFigures::Written::time_seconds>},
    {"imgd_job_checkpoint_bytes", MetricType::Gauge, "Size of that checkpoint.",
     CheckpointOf<&RankFigures::Written::bytes>},
    {"imgd_job_checkpoint_write_seconds", MetricType::Gauge,
     "Time that writing that checkpoint took, beside the training.", WriteSecondsOf},
    {"imgd_job_h2d_seconds_total", MetricType::Counter,
     "Time that copying batches to the GPUs took, beside the computing, summed over the ranks.",
     CopySecondsOf},
    {"imgd_job_images_total", MetricType::Counter,
     "Images that the ranks trained on, each as often as it was seen.",
     [](const LiveRun& run) { return SumOf(run, &RankFigures::images); }},
    {"imgd_job_images_per_second", MetricType::Gauge,
     "Training speed of all ranks in the latest report, without validation and checkpoints.", SpeedOf},
    {"imgd_job_loader_images_total", MetricType::Counter,
     "Images that the ranks' data loaders made for training.",
     [](const LiveRun& run) { return SumOf(run, &RankFigures::loader_images); }},
    {"imgd_job_input_wait_seconds_total", MetricType::Counter,
     "Time that training stood still since no batch was ready, summed over the ranks.",
     [](const LiveRun& run) { return SumOf(run, &RankFigures::wait_seconds); }},
    {"imgd_job_slowest_rank", MetricType::Gauge,
     "Rank of the whole gang whose own work took longest, in the latest report.", SlowestRankOf},
    {"imgd_job_slowest_rank_ratio", MetricType::Gauge,
     "How many times the mean over the gang this rank's own work took.", SlownessOf},
    {"imgd_job_loader_bytes_total", MetricType::Counter, "Bytes of the image files that these loaders read.",
     [](const LiveRun& run) { return SumOf(run, &RankFigures::loader_bytes); }},
};

/// What time went into, summed over a rank's reports.
struct Stage {
  const char* name;
  double RankFigures::*seconds;
};

constexpr Stage kLoaderStages[] = {
    {"read", &RankFigures::read_seconds},
    {"decode", &RankFigures::decode_seconds},
    {"augment", &RankFigures::augment_seconds},
    {"idle", &RankFigures::idle_seconds},
};

constexpr Stage kStepParts[] = {
    {"input", &RankFigures::step_input_seconds},    {"forward", &RankFigures::forward_seconds},
    {"backward", &RankFigures::backward_seconds},   {"communication", &RankFigures::communication_seconds},
    {"optimizer", &RankFigures::optimizer_seconds},
};

struct GpuMetric {
  const char* name;
  MetricType type;
  const char* help;
  MaybeValue (*value)(const GpuReading&);
};

template <std::optional<double> GpuReading::*figure>
MaybeValue FigureOf(const GpuReading& gpu) {
  return gpu.*figure;
}

template <std::optional<uint64_t> GpuReading::*count>
MaybeValue CountOf(const GpuReading& gpu) {
  return gpu.*count ? MaybeValue(static_cast<double>(*(gpu.*count))) : MaybeValue();
}

constexpr GpuMetric kGpuMetrics[] = {
    {"imgd_gpu_busy_ratio", MetricType::Gauge, "Share of time that a kernel ran on the GPU, from 0 to 1.",
     FigureOf<&GpuReading::busy_ratio>},
    {"imgd_gpu_memory_used_bytes", MetricType::Gauge, "Memory of the GPU that is in use.",
     CountOf<&GpuReading::memory_used_bytes>},
    {"imgd_gpu_power_watts", MetricType::Gauge, "Power that the GPU draws.",
     FigureOf<&GpuReading::power_watts>},
    {"imgd_gpu_energy_joules_total", MetricType::Counter,
     "Energy that the GPU has taken since its driver was loaded.", FigureOf<&GpuReading::energy_joules>},
    {"imgd_gpu_temperature_celsius", MetricType::Gauge, "Temperature of the GPU's core.",
     FigureOf<&GpuReading::temperature_celsius>},
    {"imgd_gpu_sm_clock_hertz", MetricType::Gauge, "Clock of the GPU's multiprocessors.",
     FigureOf<&GpuReading::sm_clock_hertz>},
    {"imgd_gpu_memory_clock_hertz", MetricType::Gauge, "Clock of the GPU's memory.",
     FigureOf<&GpuReading::memory_clock_hertz>},
    {"imgd_gpu_pcie_sent_bytes_total", MetricType::Counter, "Bytes that the GPU sent over PCIe.",
     CountOf<&GpuReading::pcie_sent_bytes>},
    {"imgd_gpu_pcie_received_bytes_total", MetricType::Counter, "Bytes that came to it over PCIe.",
     CountOf<&GpuReading::pcie_received_bytes>},
    {"imgd_gpu_nvlink_sent_bytes_total", MetricType::Counter,
     "Data that the GPU sent over all its NVLinks, since its driver was loaded.",
     CountOf<&GpuReading::nvlink_sent_bytes>},
    {"imgd_gpu_nvlink_received_bytes_total", MetricType::Counter,
     "Data that came to it over all its NVLinks, since then.", CountOf<&GpuReading::nvlink_received_bytes>},
    {"imgd_gpu_ecc_corrected_errors_total", MetricType::Counter,
     "Errors of the GPU's memory that were corrected, since its driver was loaded.",
     CountOf<&GpuReading::corrected_ecc_errors>},
    {"imgd_gpu_ecc_uncorrected_errors_total", MetricType::Counter,
     "Errors of the GPU's memory that were not, since then.", CountOf<&GpuReading::uncorrected_ecc_errors>},
};

/// Why a GPU is slower than it could be: NVML's bits (nvmlClocksThrottleReasons), those that tell of trouble.
struct ThrottleReason {
  const char* name;
  uint64_t bit;
};
constexpr ThrottleReason kThrottleReasons[] = {
    {"power_cap", 0x04},        {"hardware", 0x08},    {"software_thermal", 0x20},
    {"hardware_thermal", 0x40}, {"power_brake", 0x80},
};

/// Another start or another cluster's job of the same number is another series. Not `job`, which is
/// Prometheus' own label of whom it scrapes.
MetricLabels LabelsOf(const RunKey& key) {
  return {{"cluster", key.cluster},
          {"job_id", std::to_string(key.job.value())},
          {"generation", std::to_string(key.generation.value())}};
}

void AddStages(const std::vector<LiveRun>& runs, const char* label, std::span<const Stage> stages,
               MetricFamilies& families) {
  for (const auto& run : runs) {
    for (const auto& stage : stages) {
      auto labels = LabelsOf(run.key);
      labels.push_back({label, stage.name});
      families.Add(std::move(labels), SumOf(run, stage.seconds));
    }
  }
}

void AddExtents(const std::vector<LiveRun>& runs, const NodeSnapshot& node, MetricFamilies& families) {
  for (const auto& metric : kExtentMetrics) {
    families.Begin(metric.name, MetricType::Gauge, metric.help);
    for (const auto& run : runs) {
      const Extent extent = metric.value(run, node);
      for (size_t i = 0; extent && i < extent->size(); ++i) {
        auto labels = LabelsOf(run.key);
        labels.push_back({"stat", kExtent[i]});
        families.Add(std::move(labels), (*extent)[i]);
      }
    }
  }
}

/// Those of rank 0's node alone, so that a job is shown once, however many nodes it is on.
void AddRuns(const NodeSnapshot& node, MetricFamilies& families) {
  std::vector<LiveRun> runs;
  std::ranges::copy_if(node.runs, std::back_inserter(runs), &LiveRun::has_rank_0);
  for (const auto& metric : kRunMetrics) {
    families.Begin(metric.name, metric.type, metric.help);
    for (const auto& run : runs) families.Add(LabelsOf(run.key), metric.value(run));
  }
  families.Begin("imgd_job_loader_seconds_total", MetricType::Counter,
                 "Where the time of the data loaders' threads went, summed over those of all ranks.");
  AddStages(runs, "stage", kLoaderStages, families);
  families.Begin("imgd_job_step_seconds_total", MetricType::Counter,
                 "Where the time of training steps went, summed over the ranks; communication is "
                 "waiting for other ranks.");
  AddStages(runs, "part", kStepParts, families);
  AddExtents(runs, node, families);
}

MetricLabels LabelsOf(const v1::Device& gpu) {
  return {{"gpu", std::to_string(gpu.index())}, {"uuid", gpu.uuid()}};
}

MetricLabels With(MetricLabels labels, const char* name, const char* value) {
  labels.push_back({name, value});
  return labels;
}

/// What is known of the GPUs without a reading.
void AddGpusThemselves(const NodeSnapshot& node, MetricFamilies& families) {
  families.Begin("imgd_gpu_memory_bytes", MetricType::Gauge, "Memory that the GPU has.");
  for (const auto& gpu : node.gpus) families.Add(LabelsOf(gpu), static_cast<double>(gpu.memory_bytes()));
  families.Begin("imgd_gpu_allocated", MetricType::Gauge, "1 while a run has the GPU, else 0.");
  for (const auto& gpu : node.gpus) families.Add(LabelsOf(gpu), node.held.contains(gpu.index()) ? 1 : 0);
  families.Begin("imgd_gpu_reading_failed", MetricType::Gauge,
                 "1 while something of the GPU can't be read, or NVML does not answer, else 0.");
  for (size_t i = 0; i < std::min(node.gpus.size(), node.readings.size()); ++i)
    families.Add(LabelsOf(node.gpus[i]), node.readings[i].error.empty() ? 0 : 1);
}

void AddThrottling(const v1::Device& gpu, const GpuReading& reading, MetricFamilies& families) {
  if (!reading.throttle_reasons) return;
  for (const auto& reason : kThrottleReasons)
    families.Add(With(LabelsOf(gpu), "reason", reason.name),
                 (*reading.throttle_reasons & reason.bit) != 0 ? 1 : 0);
}

void AddGpus(const NodeSnapshot& node, MetricFamilies& families) {
  AddGpusThemselves(node, families);
  const size_t count = std::min(node.gpus.size(), node.readings.size());
  for (const auto& metric : kGpuMetrics) {
    families.Begin(metric.name, metric.type, metric.help);
    for (size_t i = 0; i < count; ++i) {
      if (!node.readings[i].is_old) families.Add(LabelsOf(node.gpus[i]), metric.value(node.readings[i]));
    }
  }
  families.Begin("imgd_gpu_throttled", MetricType::Gauge,
                 "1 while the GPU is slower than it could be for that reason, else 0.");
  for (size_t i = 0; i < count; ++i) {
    if (!node.readings[i].is_old) AddThrottling(node.gpus[i], node.readings[i], families);
  }
  families.Begin(
      "imgd_gpu_xid_errors_total", MetricType::Counter,
      "Xid errors of the GPU since the agent began, by whether the hardware or a program is at fault.");
  for (size_t i = 0; i < count; ++i) {
    const auto labels = LabelsOf(node.gpus[i]);
    families.Add(With(labels, "of", "hardware"), static_cast<double>(node.readings[i].hardware_xids));
    families.Add(With(labels, "of", "program"), static_cast<double>(node.readings[i].program_xids));
  }
}

void AddNodesRanks(const std::vector<LiveRun>& runs, MetricFamilies& families) {
  uint32_t ranks = 0;
  for (const auto& run : runs) ranks += run.running_ranks;
  families.Begin("imgd_node_ranks", MetricType::Gauge, "Ranks that run on this node, of all jobs.");
  families.Add({}, ranks);
}

void AddMachine(const NodeFigures& node, MetricFamilies& families) {
  families.Begin("imgd_node_cpu_seconds_total", MetricType::Counter,
                 "Time of all processors, since the machine was started.");
  families.Add({{"mode", "busy"}}, node.cpu_busy_seconds);
  families.Add({{"mode", "idle"}}, node.cpu_idle_seconds);
  const auto add = [&families](const char* name, MetricType type, const char* help, MaybeValue value) {
    families.Begin(name, type, help);
    families.Add({}, value);
  };
  add("imgd_node_memory_bytes", MetricType::Gauge, "Memory of the machine.", node.memory_bytes);
  add("imgd_node_memory_available_bytes", MetricType::Gauge,
      "Of it, what programs can have without swapping.", node.memory_available_bytes);
  add("imgd_node_disk_bytes", MetricType::Gauge, "Size of the disk that the agent's state folder is on.",
      node.disk_bytes);
  add("imgd_node_disk_free_bytes", MetricType::Gauge, "Free space there.", node.disk_free_bytes);
  add("imgd_node_network_received_bytes_total", MetricType::Counter,
      "Bytes that came in by all network interfaces but the loopback.", node.received_bytes);
  add("imgd_node_network_sent_bytes_total", MetricType::Counter, "Bytes that went out by them.",
      node.sent_bytes);
}

}  // namespace

std::vector<MetricFamily> ToFamilies(const NodeSnapshot& node) {
  MetricFamilies families;
  AddRuns(node, families);
  AddGpus(node, families);
  AddNodesRanks(node.runs, families);
  AddMachine(node.machine, families);
  return families.Take();
}

std::string ToMetricsText(const NodeSnapshot& node) { return MetricsText(ToFamilies(node)); }

}  // namespace imgd
