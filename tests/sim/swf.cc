#include "tests/sim/swf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
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

/// How many GPUs a job asks for, and how many of 1,000 jobs do. Our own split, see GenerateSwf().
constexpr std::array<std::pair<uint32_t, uint32_t>, 7> kSizes = {
    {{1, 607}, {2, 110}, {4, 90}, {8, 130}, {16, 40}, {32, 18}, {64, 5}}};

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

/// Shaped after Helios: Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale
/// GPU Datacenters", SC '21 (arXiv:2109.01313). From there, as remembered and not looked up again, so
/// "about": a cluster of about 143 nodes of 8 GPUs (Earth); GPU jobs of about 206 s at the median and about
/// 6,652 s on average, which make a log-normal distribution with a sigma of sqrt(2 ln(6652 / 206));
/// about 3.72 GPUs on average, more than half of the jobs with one, and in powers of two. Not from there but
/// our own: kSizes, a split of sizes with about this average; that size and duration do not hang together;
/// that jobs come evenly, at `load` of what the cluster can do; and that the time asked for is 1 to 5 times
/// the run time (as Mu'alem and Feitelson, IEEE TPDS 12(6), 2001, model estimates).
std::string GenerateSwf(uint64_t seed, uint32_t jobs, double load) {
  constexpr double kMedian = 206;
  constexpr double kMean = 6652;
  constexpr double kLongest = 14 * 86400;
  constexpr double kGpus = 143 * 8;
  constexpr double kMeanGpus = 3.72;
  const double sigma = std::sqrt(2 * std::log(kMean / kMedian));
  Dice dice(seed);
  std::string out =
      "; Version: 2.2\n; MaxNodes: 143\n; MaxProcs: 1144\n; Note: generated, shaped like Helios Earth\n";
  double now = 0;
  for (uint32_t i = 1; i <= jobs; ++i) {
    now += -std::log(1 - dice.Unit()) * kMean * kMeanGpus / (load * kGpus);
    const double run = std::clamp(std::ceil(kMedian * std::exp(sigma * DrawNormal(dice))), 1.0, kLongest);
    const double asked = std::ceil(run * (1 + 4 * dice.Unit()) / 60) * 60;
    const uint32_t gpus = DrawSize(dice);
    out += fmt::format("{} {:.0f} -1 {:.0f} {} -1 -1 {} {:.0f} -1 1 -1 -1 -1 -1 -1 -1 -1\n", i, now, run,
                       gpus, gpus, asked);
  }
  return out;
}

}  // namespace imgd::sim
