#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "server/store/history_reader.h"
#include "server/store/rank_times.h"

/// `history_bench FOLDER RUNS REPORTS`: makes a metrics.db of that many runs with that many step reports
/// each, of a gang of 128 ranks, then times what the pages' charts ask of it. Prints JSON.
namespace imgd {
namespace {

constexpr size_t kReportsOfBatch = kPieceValues * 16;
constexpr uint32_t kRanks = 128;

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// As noisy as those of a run, from float32 as trainers have them; some columns are constant, as in a run of
/// one rank.
StepReport MakeReport(uint64_t step, std::mt19937_64& random) {
  const auto noise = [&random] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  StepReport report{.number = step, .generation = Generation(1)};
  for (const auto& [figure, name] : StepFigures()) report.figures[figure] = static_cast<float>(1 + noise());
  for (const Figure same : {Figure::kLearningRate, Figure::kPenalty, Figure::kSlowestRank})
    report.figures[same] = 0.1;
  report.figures[Figure::kLoss] = 7 / (1 + static_cast<double>(step) * 1e-4) + noise();
  report.figures[Figure::kStep] = static_cast<double>(step);
  report.figures[Figure::kEpoch] = static_cast<double>(step) / 5004;
  report.figures[Figure::kTimeUs] = std::floor(1.7e15 + static_cast<double>(step) * 1e5 + noise() * 1e4);
  return report;
}

/// The most stretches that are kept, of each rank.
void WriteRankTimes(Database& database, JobId job, uint64_t reports, std::mt19937_64& random) {
  RankTimes times;
  const uint64_t each = std::max<uint64_t>(reports / 128, 1);
  for (uint64_t step = each; step <= reports; step += each) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const double own = 1 + static_cast<double>(random() % 1000) / 1000;
      times.Add(Generation(1), rank, step, {.own_seconds = own, .wait_seconds = 2 - own, .steps = 1});
    }
  }
  SaveRankTimes(database, job, times.TakeChanges());
}

bool WriteRuns(Database& database, uint64_t runs, uint64_t reports) {
  std::mt19937_64 random(7);
  WriteBatch batch(database);
  for (uint64_t job = 1; job <= runs; ++job) {
    for (uint64_t step = 0; step < reports;) {
      std::vector<StepReport> some;
      while (some.size() < kReportsOfBatch && step < reports) some.push_back(MakeReport(++step, random));
      batch.Write([&](Database& open) { SealThese(open, JobId(job), some, step == reports); });
      if (!batch.Commit()) return false;
    }
    batch.Write([&](Database& open) { WriteRankTimes(open, JobId(job), reports, random); });
    if (!batch.Commit()) return false;
  }
  return true;
}

/// Milliseconds of the slowest and the median of 50 times `ask(job)` of random runs, as JSON.
template <typename Ask>
std::string TimeQueries(uint64_t runs, Ask ask) {
  std::mt19937_64 random(8);
  std::vector<double> took;
  for (int i = 0; i < 50; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    if (!ask(JobId(1 + random() % runs))) std::exit(1);
    took.push_back(SecondsSince(begin) * 1e3);
  }
  std::sort(took.begin(), took.end());
  return fmt::format("{{\"slowest_ms\": {:.2f}, \"median_ms\": {:.2f}}}", took.back(), took[took.size() / 2]);
}

/// What the page of a job draws of its step reports (web/src/pages/job_curves.tsx).
const std::vector<std::string> kPage = {"loss",
                                        "top1",
                                        "learning_rate",
                                        "images_per_second",
                                        "input_seconds",
                                        "forward_seconds",
                                        "backward_seconds",
                                        "communication_seconds",
                                        "optimizer_seconds",
                                        "own_least_seconds",
                                        "own_most_seconds",
                                        "slowest_rank",
                                        "gpu_busy_most_ratio",
                                        "gpu_busy_mean_ratio",
                                        "gpu_busy_least_ratio"};

int MeasureHistory(const std::filesystem::path& folder, uint64_t runs, uint64_t reports) {
  std::filesystem::create_directories(folder);
  const auto path = folder / "metrics.db";
  const auto begin = std::chrono::steady_clock::now();
  {
    auto database = Database::OpenForWriting(path, MetricsMigrations());
    if (!database || !WriteRuns(*database, runs, reports)) return 1;
  }
  const double write_seconds = SecondsSince(begin);
  auto database = Database::OpenForReading(path);
  if (!database) return 1;
  const double middle = static_cast<double>(reports) / 2;
  const std::vector<std::pair<const char*, CurveQuery>> queries = {
      {"a whole run, one figure", {.names = {"loss"}}},
      {"a whole run by time, every figure", {.x = Axis::kTime}},
      {"1,000 steps of it, every value", {.names = {"loss"}, .from = middle, .to = middle + 999}},
      {"a third of it, 5,000 points",
       {.names = {"loss"}, .points = 5000, .from = middle / 2, .to = middle * 7 / 6}},
      {"every value, 10,000 points", {.names = {"loss"}, .points = 10'000}},
      {"the page of a job, 15 figures smoothed", {.names = kPage, .smooth = 0.6}},
      {"the page of a job, a twentieth from its middle on, smoothed",
       {.names = kPage, .from = middle, .to = middle * 1.1, .smooth = 0.6}},
      {"the page of a job, smoothed by 0.99", {.names = kPage, .smooth = 0.99}},
      {"the page of a job by time, smoothed", {.names = kPage, .x = Axis::kTime, .smooth = 0.6}},
      {"a run of a comparison, one figure smoothed", {.names = {"loss"}, .points = 600, .smooth = 0.6}},
      {"its mean", {.names = {"images_per_second"}, .points = 1, .mean = true}},
  };
  fmt::print("{{\"points\": {}, \"bytes\": {}, \"write_seconds\": {:.1f}, \"queries\": {{",
             runs * reports * (StepFigures().size() + 3), std::filesystem::file_size(path), write_seconds);
  for (const auto& [what, query] : queries) {
    fmt::print("\"{}\": {}, ", what,
               TimeQueries(runs, [&](JobId job) { return ReadCurves(*database, job, query).has_value(); }));
  }
  fmt::print("\"where the time of 128 ranks went\": {}}}}}\n", TimeQueries(runs, [&](JobId job) {
               return WithoutRepeats(LoadRankTimes(*database, job)).size() > 1;
             }));
  return 0;
}

}  // namespace
}  // namespace imgd

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: history_bench FOLDER RUNS REPORTS\n");
    return 2;
  }
  return imgd::MeasureHistory(argv[1], std::strtoull(argv[2], nullptr, 10),
                              std::strtoull(argv[3], nullptr, 10));
}
