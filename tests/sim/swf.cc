#include "tests/sim/swf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <numbers>
#include <sstream>

#include "tests/sim/timeline.h"

namespace imgd::sim {
namespace {

constexpr size_t kFields = 18;

void ReadHeader(const std::string& line, SwfTrace& trace) {
  std::istringstream in(line.substr(1));
  std::string key;
  uint32_t value = 0;
  if (!(in >> key >> value)) return;
  if (key == "MaxNodes:") trace.nodes = value;
  if (key == "MaxProcs:") trace.processors = value;
}

// Helios, cluster Venus, GPU jobs: https://github.com/S-Lab-System-Group/HeliosArtifact, the row "Venus" of
// "analysis/1_compare with Philly trace/helios_cluster_summary.csv". Run times in seconds.
constexpr double kMedian = 204;
constexpr double kMean = 13040.598;
constexpr double kCompleted = 0.526;
constexpr double kCancelled = 0.272;
/// Of all of Helios: https://github.com/InternLM/AcmeTrace, data/cluster_summary.csv, max_run_time_gpu.
constexpr double kLongest = 4'320'009;
/// Venus has 1,022 GPUs.
constexpr uint32_t kNodes = 128;
constexpr uint32_t kGpusOfNode = 8;

/// How many GPUs a job asks for, and how many of 1,000 jobs do. Our own split; its average, 6.74, and its
/// median, 1, are those of Venus.
constexpr std::array<std::pair<uint32_t, uint32_t>, 8> kSizes = {
    {{1, 534}, {2, 90}, {4, 90}, {8, 160}, {16, 60}, {32, 39}, {64, 20}, {128, 7}}};

constexpr double MeanGpus() {
  double sum = 0;
  for (const auto& [size, weight] : kSizes) sum += size * weight;
  return sum / 1000;
}

uint32_t DrawSize(Dice& dice) {
  uint64_t drawn = dice.Below(1000);
  for (const auto& [size, weight] : kSizes) {
    if (drawn < weight) return size;
    drawn -= weight;
  }
  return 1;
}

double DrawNormal(Dice& dice) {
  return std::sqrt(-2 * std::log(1 - dice.Unit())) * std::cos(2 * std::numbers::pi * dice.Unit());
}

double Phi(double z) { return std::erfc(-z / std::numbers::sqrt2) / 2; }

/// The mean of run times that are log-normal, and cut off where the longest is.
double MeanRun(double sigma) {
  const double cut = std::log(kLongest / kMedian) / sigma;
  return kMedian * std::exp(sigma * sigma / 2) * Phi(cut - sigma) + kLongest * (1 - Phi(cut));
}

/// For which the mean is the published one.
double SigmaOfRuns() {
  double low = 0.1;
  double high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (MeanRun(middle) < kMean ? low : high) = middle;
  }
  return low;
}

double DrawRun(Dice& dice, double sigma) {
  return std::clamp(std::ceil(kMedian * std::exp(sigma * DrawNormal(dice))), 1.0, kLongest);
}

/// The next after `from`, one each `gap` seconds on average: by day more than by night.
double DrawArrival(Dice& dice, double from, double gap) {
  constexpr double kSwing = 0.6;
  while (true) {
    from += -std::log(1 - dice.Unit()) * gap / (1 + kSwing);
    const double rate = 1 + kSwing * std::sin(2 * std::numbers::pi * from / 86400);
    if (dice.Chance(rate / (1 + kSwing))) return from;
  }
}

/// As the format numbers them: 1 completed, 5 cancelled, 0 failed.
int DrawStatus(Dice& dice) {
  const double drawn = dice.Unit();
  if (drawn < kCompleted) return 1;
  return drawn < kCompleted + kCancelled ? 5 : 0;
}

/// A job that was made up, and how it ended.
struct Drawn {
  SwfJob job;
  int status = 1;
};

Drawn DrawJob(Dice& dice, size_t number, double submit, double run) {
  const double asked = std::ceil(run * (1 + 4 * dice.Unit()) / 60) * 60;
  const uint32_t gpus = DrawSize(dice);
  return {{static_cast<int64_t>(number), std::round(submit), run, gpus, asked}, DrawStatus(dice)};
}

/// One comes each `gap` seconds on average. The cluster is as full at the beginning as later: what would
/// still run of jobs from before begins then, had all begun as they came.
std::vector<Drawn> DrawJobs(uint64_t seed, uint32_t jobs, double gap) {
  const double sigma = SigmaOfRuns();
  Dice dice(seed);
  std::vector<Drawn> drawn;
  for (double at = DrawArrival(dice, -kLongest, gap); at < 0; at = DrawArrival(dice, at, gap)) {
    const double left = DrawRun(dice, sigma) + std::floor(at);
    if (left > 0) drawn.push_back(DrawJob(dice, drawn.size() + 1, 0, left));
  }
  double at = 0;
  for (uint32_t i = 0; i < jobs; ++i) {
    at = DrawArrival(dice, at, gap);
    drawn.push_back(DrawJob(dice, drawn.size() + 1, at, DrawRun(dice, sigma)));
  }
  return drawn;
}

/// Which part of the GPUs they would use until the last one comes, if each began as it came.
double LoadOf(const std::vector<Drawn>& drawn) {
  const double last = std::max(drawn.back().job.submit_s, 1.0);
  double used = 0;
  for (const auto& [job, status] : drawn)
    used += std::max(std::min(job.submit_s + job.run_s, last) - job.submit_s, 0.0) * job.processors;
  return used / (last * kNodes * kGpusOfNode);
}

/// Those that come so often that the load is as wanted. In a trace of some weeks it hangs on a few jobs that
/// outlast it, so that averages alone would miss it.
std::vector<Drawn> DrawLoad(uint64_t seed, uint32_t jobs, double load) {
  double least = kMean * MeanGpus() / (load * kNodes * kGpusOfNode) / 8;
  double most = least * 32;
  std::vector<Drawn> best;
  double error = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 30; ++i) {
    const double gap = std::sqrt(least * most);
    auto drawn = DrawJobs(seed, jobs, gap);
    const double got = LoadOf(drawn);
    (got > load ? least : most) = gap;
    if (std::abs(got - load) >= error) continue;
    error = std::abs(got - load);
    best = std::move(drawn);
  }
  return best;
}

}  // namespace

Result<SwfTrace> ReadSwf(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Fail(ErrorCode::kNotFound, "can't read {}", path);
  SwfTrace trace;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (line.front() == ';') {
      ReadHeader(line, trace);
      continue;
    }
    std::istringstream in(line);
    std::array<double, kFields> fields{};
    for (auto& field : fields) {
      if (!(in >> field)) {
        return Fail(ErrorCode::kInvalidArgument, "{}:{}: found '{}'; a line has {} numbers", path, number,
                    line, kFields);
      }
    }
    const double processors = fields[7] > 0 ? fields[7] : fields[4];
    if (processors < 1 || fields[3] < 0) continue;
    trace.jobs.push_back({.number = static_cast<int64_t>(fields[0]),
                          .submit_s = fields[1],
                          .run_s = fields[3],
                          .processors = static_cast<uint32_t>(processors),
                          .requested_s = fields[8]});
  }
  std::stable_sort(trace.jobs.begin(), trace.jobs.end(),
                   [](const SwfJob& a, const SwfJob& b) { return a.submit_s < b.submit_s; });
  return trace;
}

/// Shaped after Helios, a data centre for deep learning (Hu et al., "Characterization and Prediction of Deep
/// Learning Workloads in Large-Scale GPU Datacenters", SC '21, arXiv:2109.01313), of which the cluster Venus
/// has the largest jobs. From its data: the figures above. Our own assumptions: the split of sizes; that run
/// times are log-normal, and do not hang together with sizes (in Venus the GPU time of a job is 98,500 s on
/// average, 12 % more than what the two averages make); the swing of a day; and that the time asked for is 1
/// to 5 times the run time (as Mu'alem and Feitelson, IEEE TPDS 12(6), 2001, model estimates). Venus itself
/// was used to 76 %: `load` is ours.
std::string GenerateSwf(uint64_t seed, uint32_t jobs, double load) {
  std::string out = fmt::format(
      "; Version: 2.2\n; MaxNodes: {}\n; MaxProcs: {}\n; Note: generated, shaped like Helios Venus\n", kNodes,
      kNodes * kGpusOfNode);
  for (const auto& [job, status] : DrawLoad(seed, jobs, load)) {
    out += fmt::format("{} {:.0f} -1 {:.0f} {} -1 -1 {} {:.0f} -1 {} -1 -1 -1 -1 -1 -1 -1\n", job.number,
                       job.submit_s, job.run_s, job.processors, job.processors, job.requested_s, status);
  }
  return out;
}

}  // namespace imgd::sim
