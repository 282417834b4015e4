#include "server/store/history.h"

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "imgd/v1/trainer.pb.h"
#include "server/store/history_codec.h"
#include "server/store/metrics_store.h"
#include "server/store/sql.h"

namespace imgd {
namespace {

constexpr size_t kMostSealedAtOnce = 4096;

constexpr std::array kStepFigures = {
    FigureName{Figure::kLoss, "loss"},
    FigureName{Figure::kTop1, "top1"},
    FigureName{Figure::kLearningRate, "learning_rate"},
    FigureName{Figure::kImagesPerSecond, "images_per_second"},
    FigureName{Figure::kInputWaitRatio, "input_wait_ratio"},
    FigureName{Figure::kGradientNorm, "gradient_norm"},
    FigureName{Figure::kPenalty, "penalty"},
    FigureName{Figure::kInputSeconds, "input_seconds"},
    FigureName{Figure::kForwardSeconds, "forward_seconds"},
    FigureName{Figure::kBackwardSeconds, "backward_seconds"},
    FigureName{Figure::kCommunicationSeconds, "communication_seconds"},
    FigureName{Figure::kOptimizerSeconds, "optimizer_seconds"},
    FigureName{Figure::kOwnLeastSeconds, "own_least_seconds"},
    FigureName{Figure::kOwnMostSeconds, "own_most_seconds"},
    FigureName{Figure::kWaitLeastSeconds, "wait_least_seconds"},
    FigureName{Figure::kWaitMostSeconds, "wait_most_seconds"},
    FigureName{Figure::kSlowestRank, "slowest_rank"},
    FigureName{Figure::kGpuBusyLeast, "gpu_busy_least_ratio"},
    FigureName{Figure::kGpuBusyMean, "gpu_busy_mean_ratio"},
    FigureName{Figure::kGpuBusyMost, "gpu_busy_most_ratio"},
};

/// Values of one row, by what it holds of each: itself, or its summary.
std::vector<Summary> EntriesOf(const std::vector<double>& data, int level) {
  const size_t n = level == 0 ? data.size() : data.size() / 3;
  std::vector<Summary> out(n);
  for (size_t i = 0; i < n; ++i)
    out[i] = level == 0 ? Summary{data[i], data[i], data[i]} : Summary{data[i], data[n + i], data[2 * n + i]};
  return out;
}

void InsertRow(Database& database, JobId job, Generation generation, Figure figure, int level, uint64_t first,
               std::span<const double> values) {
  const std::string data = EncodeColumn(values);
  auto& statement = database.Prepare("INSERT OR REPLACE INTO history VALUES (?,?,?,?,?,?)");
  BindAll(statement, 1, Signed(job.value()), Signed(generation.value()), static_cast<int>(figure), level,
          Signed(first));
  statement.bind(6, data.data(), static_cast<int>(data.size()));
  statement.exec();
  statement.reset();
}

/// The full rows of a level from `first` on that one row of the next level stands for.
std::vector<Summary> FullRows(Database& database, JobId job, Generation generation, Figure figure, int level,
                              uint64_t first) {
  auto& query = database.Prepare(
      "SELECT data FROM history WHERE job = ? AND generation = ? AND figure = ? AND level = ? AND first >= ? "
      "ORDER BY first LIMIT ?");
  BindAll(query, 1, Signed(job.value()), Signed(generation.value()), static_cast<int>(figure), level,
          Signed(first), static_cast<int>(kFanOut));
  std::vector<Summary> out;
  while (query.executeStep()) {
    const auto data = query.getColumn(0);
    const auto values =
        DecodeColumn({static_cast<const char*>(data.getBlob()), static_cast<size_t>(data.getBytes())},
                     level == 0 ? kPieceValues : 3 * kPieceValues);
    if (!values) throw SQLite::Exception(values.error().message, SQLITE_CORRUPT);
    const auto entries = EntriesOf(*values, level);
    out.insert(out.end(), entries.begin(), entries.end());
  }
  query.reset();
  return out;
}

/// The row of `level` that ends with value number `end`, of those of the level below.
void InsertSummaries(Database& database, JobId job, Generation generation, Figure figure, int level,
                     uint64_t end, uint64_t row_values) {
  const uint64_t first = end - row_values;
  const auto below = FullRows(database, job, generation, figure, level - 1, first);
  if (below.size() != kPieceValues * kFanOut) return;  // what reads it says that a piece lacks
  std::vector<double> data(3 * kPieceValues);
  for (size_t i = 0; i < kPieceValues; ++i) {
    Summary sum = below[i * kFanOut];
    for (size_t k = 1; k < kFanOut; ++k) Join(sum, below[i * kFanOut + k]);
    data[i] = sum.min;
    data[kPieceValues + i] = sum.max;
    data[2 * kPieceValues + i] = sum.last;
  }
  InsertRow(database, job, generation, figure, level, first, data);
}

/// One piece of every column, and what is complete above it.
void SealPiece(Database& database, JobId job, std::span<const StepReport> reports, uint64_t first) {
  const Generation generation = reports.front().generation;
  const uint64_t end = first + reports.size();
  std::vector<double> values(reports.size());
  for (const auto& [figure, value] : reports.front().figures) {
    for (size_t i = 0; i < reports.size(); ++i) values[i] = reports[i].figures.at(figure);
    InsertRow(database, job, generation, figure, 0, first, values);
    uint64_t row_values = kPieceValues * kFanOut;
    for (int level = 1; end % row_values == 0; ++level, row_values *= kFanOut)
      InsertSummaries(database, job, generation, figure, level, end, row_values);
  }
}

void SaveSealed(Database& database, JobId job, const SealedRun& run) {
  RunSql(database, "INSERT OR REPLACE INTO history_runs VALUES (?,?,?,?,?,?,?)", Signed(job.value()),
         Signed(run.generation.value()), Signed(run.reports), Signed(run.last_number),
         run.first.at(Figure::kStep), run.first.at(Figure::kEpoch), run.first.at(Figure::kTimeUs));
}

}  // namespace

std::span<const FigureName> StepFigures() { return kStepFigures; }

void Join(Summary& into, const Summary& next) {
  into.min = std::fmin(into.min, next.min);
  into.max = std::fmax(into.max, next.max);
  into.last = next.last;
}

StepReport StepReportOf(uint64_t number, Generation generation, int64_t time_us, const std::string& payload) {
  v1::StepMetrics step;
  step.ParseFromString(payload);
  const auto& times = step.times();
  const double steps = std::max<uint32_t>(times.steps(), 1);
  const auto& ranks = step.ranks();
  const auto busy = [&step](double value) { return step.has_devices() ? value : std::nan(""); };
  // One rank has no others to be compared with.
  const auto of_ranks = [&step](double value) { return step.has_ranks() ? value : std::nan(""); };
  const auto& devices = step.devices();
  return {.number = number,
          .generation = generation,
          .figures = {{Figure::kStep, static_cast<double>(step.step())},
                      {Figure::kEpoch, step.epoch()},
                      {Figure::kTimeUs, static_cast<double>(time_us)},
                      {Figure::kLoss, step.loss()},
                      {Figure::kTop1, step.top1()},
                      {Figure::kLearningRate, step.learning_rate()},
                      {Figure::kImagesPerSecond, step.images_per_second()},
                      {Figure::kInputWaitRatio, step.input_wait_ratio()},
                      {Figure::kGradientNorm, step.gradient_norm()},
                      {Figure::kPenalty, step.penalty()},
                      {Figure::kInputSeconds, times.input_seconds() / steps},
                      {Figure::kForwardSeconds, times.forward_seconds() / steps},
                      {Figure::kBackwardSeconds, times.backward_seconds() / steps},
                      {Figure::kCommunicationSeconds, times.communication_seconds() / steps},
                      {Figure::kOptimizerSeconds, times.optimizer_seconds() / steps},
                      {Figure::kOwnLeastSeconds, of_ranks(ranks.own_least_seconds())},
                      {Figure::kOwnMostSeconds, of_ranks(ranks.own_most_seconds())},
                      {Figure::kWaitLeastSeconds, of_ranks(ranks.wait_least_seconds())},
                      {Figure::kWaitMostSeconds, of_ranks(ranks.wait_most_seconds())},
                      {Figure::kSlowestRank, of_ranks(static_cast<double>(ranks.slowest_rank()))},
                      {Figure::kGpuBusyLeast, busy(devices.busy_least_ratio())},
                      {Figure::kGpuBusyMean, busy(devices.busy_mean_ratio())},
                      {Figure::kGpuBusyMost, busy(devices.busy_most_ratio())}}};
}

std::vector<SealedRun> SealedRuns(Database& database, JobId job) {
  auto& query = database.Prepare(
      "SELECT generation, reports, last_number, first_step, first_epoch, first_time_us FROM history_runs "
      "WHERE job = ? ORDER BY generation");
  query.bind(1, Signed(job.value()));
  std::vector<SealedRun> out;
  while (query.executeStep()) {
    out.push_back({.generation = Generation(Unsigned(query.getColumn(0))),
                   .reports = Unsigned(query.getColumn(1)),
                   .last_number = Unsigned(query.getColumn(2)),
                   .first = {{Figure::kStep, query.getColumn(3).getDouble()},
                             {Figure::kEpoch, query.getColumn(4).getDouble()},
                             {Figure::kTimeUs, query.getColumn(5).getDouble()}}});
  }
  query.reset();
  return out;
}

std::vector<StepReport> StepReportsAfter(Database& database, JobId job, uint64_t after, size_t most) {
  auto& query = database.Prepare(
      "SELECT number, generation, time_us, payload FROM events WHERE job = ? AND kind = ? AND number > ? "
      "ORDER BY number LIMIT ?");
  BindAll(query, 1, Signed(job.value()), static_cast<int>(EventKind::kStep), Signed(after), Signed(most));
  std::vector<StepReport> out;
  while (query.executeStep()) {
    const auto payload = query.getColumn(3);
    out.push_back(StepReportOf(
        Unsigned(query.getColumn(0)), Generation(Unsigned(query.getColumn(1))), query.getColumn(2).getInt64(),
        std::string(static_cast<const char*>(payload.getBlob()), static_cast<size_t>(payload.getBytes()))));
  }
  query.reset();
  return out;
}

size_t SealThese(Database& database, JobId job, std::span<const StepReport> reports, bool all) {
  if (reports.empty()) return 0;
  SealedRun run{.generation = reports.front().generation, .first = reports.front().figures};
  for (auto& known : SealedRuns(database, job)) {
    if (known.generation == run.generation) run = std::move(known);
  }
  size_t sealed = 0;
  while (sealed < reports.size()) {
    const size_t n = std::min(kPieceValues, reports.size() - sealed);
    if (n < kPieceValues && !all) break;
    SealPiece(database, job, reports.subspan(sealed, n), run.reports);
    run.reports += n;
    sealed += n;
    run.last_number = reports[sealed - 1].number;
  }
  if (sealed > 0) SaveSealed(database, job, run);
  return sealed;
}

void DropSealed(Database& database, JobId job, size_t kept) {
  RunSql(database,
         "DELETE FROM events WHERE job = ?1 AND kind = ?2 AND number <= (SELECT number FROM events WHERE job "
         "= ?1 AND kind = ?2 AND number <= (SELECT max(last_number) FROM history_runs WHERE job = ?1) ORDER "
         "BY number DESC LIMIT 1 OFFSET ?3)",
         Signed(job.value()), static_cast<int>(EventKind::kStep), Signed(kept));
}

void SealReports(Database& database, JobId job) {
  const auto runs = SealedRuns(database, job);
  const uint64_t after = runs.empty() ? 0 : runs.back().last_number;
  const auto reports = StepReportsAfter(database, job, after, kMostSealedAtOnce);
  const std::span<const StepReport> span(reports);
  for (size_t begin = 0; begin < span.size();) {
    size_t end = begin;
    while (end < span.size() && span[end].generation == span[begin].generation) ++end;
    // Of a start that another has followed nothing more comes.
    SealThese(database, job, span.subspan(begin, end - begin), end < span.size());
    begin = end;
  }
}

}  // namespace imgd
