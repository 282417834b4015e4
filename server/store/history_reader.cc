#include "server/store/history_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>

#include "common/yaml.h"
#include "imgd/v1/trainer.pb.h"
#include "server/store/history_column.h"
#include "server/store/history_means.h"
#include "server/store/metrics_store.h"
#include "server/store/sql.h"

namespace imgd {
namespace {

constexpr size_t kMostUnsealed = 1'000'000;
constexpr double kMicros = 1e6;
constexpr double kForever = std::numeric_limits<double>::infinity();

Figure FigureOf(Axis x) {
  return x == Axis::kStep ? Figure::kStep : x == Axis::kTime ? Figure::kTimeUs : Figure::kEpoch;
}

/// An x of the query as the stored column has it.
double ToStored(double x, const CurveQuery& query) {
  return query.x == Axis::kTime ? x * kMicros : query.x == Axis::kImages ? x / query.images_per_epoch : x;
}

/// The other way round.
double FromStored(double value, const CurveQuery& query) {
  return query.x == Axis::kTime     ? value / kMicros
         : query.x == Axis::kImages ? value * query.images_per_epoch
                                    : value;
}

/// The part of one start that counts.
struct Stretch {
  Generation generation;
  std::map<Figure, double> first;  ///< of kStep, kEpoch and kTimeUs, at its first report
  uint64_t sealed = 0;             ///< reports
  uint64_t begin = 0;              ///< of the sealed ones
  uint64_t end = 0;
  uint64_t kept = 0;                    ///< of the sealed ones, those that no later start did again
  std::vector<StepReport> rest;         ///< those that are not sealed
  std::vector<StepReport> rest_before;  ///< of these the ones before `from`
};

/// A step report that is not sealed yet belongs to a start that may have sealed ones.
std::vector<Stretch> StretchesOf(Database& database, JobId job) {
  std::vector<Stretch> out;
  const auto sealed = SealedRuns(database, job);
  for (const auto& run : sealed)
    out.push_back({.generation = run.generation, .first = run.first, .sealed = run.reports});
  const uint64_t last_sealed = sealed.empty() ? 0 : sealed.back().last_number;
  for (auto& report : StepReportsAfter(database, job, last_sealed, kMostUnsealed)) {
    if (out.empty() || out.back().generation != report.generation)
      out.push_back({.generation = report.generation, .first = report.figures});
    out.back().rest.push_back(std::move(report));
  }
  return out;
}

/// From where on, in the query's unit, later starts did again what this one did; by time they did not.
double DoneAgainFrom(const std::vector<Stretch>& stretches, Generation generation, const CurveQuery& query) {
  double from = kForever;
  if (query.x == Axis::kTime) return from;
  for (const auto& stretch : stretches) {
    if (stretch.generation > generation)
      from = std::min(from, FromStored(stretch.first.at(FigureOf(query.x)), query));
  }
  return from;
}

/// Leaves of each start what lies within the query and was not done again by a later one.
Status Narrow(Database& database, JobId job, const CurveQuery& query, std::vector<Stretch>& stretches) {
  const Figure axis = FigureOf(query.x);
  const double from = query.from ? ToStored(*query.from, query) : -kForever;
  const double to = query.to ? ToStored(*query.to, query) : kForever;
  double done_again = kForever;
  for (auto stretch = stretches.rbegin(); stretch != stretches.rend(); ++stretch) {
    HistoryColumn column(database, job, stretch->generation, axis, stretch->sealed);
    IMGD_ASSIGN(stretch->begin, column.Find(from, false));
    IMGD_ASSIGN(const uint64_t within, column.Find(to, true));
    IMGD_ASSIGN(stretch->kept, column.Find(done_again, false));
    stretch->end = std::max(stretch->begin, std::min(within, stretch->kept));
    std::copy_if(stretch->rest.begin(), stretch->rest.end(), std::back_inserter(stretch->rest_before),
                 [&](const StepReport& report) {
                   const double x = report.figures.at(axis);
                   return x < from && x < done_again;
                 });
    std::erase_if(stretch->rest, [&](const StepReport& report) {
      const double x = report.figures.at(axis);
      return !(x >= from && x <= to && x < done_again);
    });
    if (query.x != Axis::kTime) done_again = std::min(done_again, stretch->first.at(axis));
  }
  return {};
}

/// A figure of all stretches, one after another.
Result<std::vector<HistoryEntry>> Entries(Database& database, JobId job,
                                          const std::vector<Stretch>& stretches, Figure figure, int level) {
  std::vector<HistoryEntry> out;
  for (const auto& stretch : stretches) {
    HistoryColumn column(database, job, stretch.generation, figure, stretch.sealed);
    IMGD_TRY(column.Read(stretch.begin, stretch.end, level, out));
    for (const auto& report : stretch.rest) {
      const double value = report.figures.at(figure);
      out.push_back({{value, value, value}});
    }
  }
  return out;
}

/// Entries that follow each other, joined to points of at least `width` values; `x` has the place of each.
std::vector<CurvePoint> Points(const std::vector<HistoryEntry>& x, const std::vector<HistoryEntry>& values,
                               uint64_t width) {
  std::vector<CurvePoint> out;
  for (size_t i = 0; i < values.size(); ++i) {
    if (out.empty() || out.back().count >= width) {
      out.push_back({.values = values[i].values});
    } else {
      Join(out.back().values, values[i].values);
    }
    out.back().count += values[i].count;
    out.back().x = x[i].values.last;
  }
  return out;
}

/// The sealed values of a stretch that the query is about, or those before it, and the others.
enum class Which { kWithin, kBefore };
HistoryValues ValuesOf(Database& database, JobId job, const std::vector<Stretch>& stretches, Figure figure,
                       Which which) {
  HistoryValues out;
  for (const auto& stretch : stretches) {
    const HistoryColumn column(database, job, stretch.generation, figure, stretch.sealed);
    if (which == Which::kWithin) {
      out.Add(column, stretch.begin, stretch.end, stretch.rest);
    } else {
      out.Add(column, 0, std::min(stretch.begin, stretch.kept), stretch.rest_before);
    }
  }
  return out;
}

/// Puts the smoothed values into the curve's points, and the mean into the curve.
Status AddMeans(Database& database, JobId job, const std::vector<Stretch>& stretches, Figure figure,
                const CurveQuery& query, uint64_t most_smoothed, Curve& curve) {
  HistoryValues values = ValuesOf(database, job, stretches, figure, Which::kWithin);
  if (query.mean && figure == Figure::kImagesPerSecond) {
    // Of each 64 reports: those of all would take more time to read than the rest together.
    constexpr int kLevel = 2;
    HistoryValues steps = ValuesOf(database, job, stretches, Figure::kStep, Which::kWithin);
    IMGD_ASSIGN(const auto work, Entries(database, job, stretches, Figure::kEpoch, kLevel));
    IMGD_ASSIGN(curve.mean, MeanRateOf(values, steps, work));
  } else if (query.mean) {
    IMGD_ASSIGN(curve.mean, MeanOf(values));
  }
  if (!(query.smooth > 0)) return {};
  HistoryValues before = ValuesOf(database, job, stretches, figure, Which::kBefore);
  return Smooth(before, values, query.smooth, most_smoothed, curve.points);
}

/// A GPU may well do nothing; the other figures are 0 where they are not reported.
bool WasReported(const Curve& curve) {
  const bool any_number = curve.name.starts_with("gpu_busy_");
  // Of several ranks: without them there is no number.
  const bool may_lack = any_number || curve.name.starts_with("own_") || curve.name.starts_with("wait_") ||
                        curve.name == "slowest_rank";
  return std::any_of(curve.points.begin(), curve.points.end(),
                     [any_number, may_lack](const CurvePoint& point) {
                       if (may_lack && std::isnan(point.values.min)) return false;
                       if (any_number) return true;
                       return point.values.min != 0 || point.values.max != 0;
                     });
}

Result<std::vector<Curve>> StepCurves(Database& database, JobId job, const CurveQuery& query,
                                      const std::vector<FigureName>& wanted, std::vector<Stretch> stretches) {
  std::vector<Curve> out;
  if (wanted.empty() || stretches.empty()) return out;
  IMGD_TRY(Narrow(database, job, query, stretches));
  uint64_t values = 0;
  for (const auto& stretch : stretches) values += stretch.end - stretch.begin + stretch.rest.size();
  const uint64_t width = std::max<uint64_t>((values + query.points - 1) / query.points, 1);
  int level = 0;
  for (uint64_t each = kFanOut; each <= width; each *= kFanOut) ++level;
  IMGD_ASSIGN(const auto x, Entries(database, job, stretches, FigureOf(query.x), level));
  for (const auto& [figure, name] : wanted) {
    IMGD_ASSIGN(const auto entries, Entries(database, job, stretches, figure, level));
    Curve& curve = out.emplace_back(Curve{std::string(name), Points(x, entries, width), std::nullopt});
    for (auto& point : curve.points) point.x = FromStored(point.x, query);
    if (query.smooth > 0 || query.mean)
      IMGD_TRY(AddMeans(database, job, stretches, figure, query, kMostSmoothed / wanted.size(), curve));
  }
  return out;
}

struct Validation {
  double x = 0;
  std::array<double, 4> figures{};  ///< as ValidationFigures()
};

std::vector<Validation> Validations(Database& database, JobId job, const CurveQuery& query,
                                    const std::vector<Stretch>& stretches) {
  auto& rows = database.Prepare(
      "SELECT time_us, payload, generation FROM events WHERE job = ? AND kind = ? ORDER BY number");
  BindAll(rows, 1, Signed(job.value()), static_cast<int>(EventKind::kEpoch));
  std::vector<Validation> out;
  while (rows.executeStep()) {
    v1::EpochMetrics epoch;
    const auto payload = rows.getColumn(1);
    epoch.ParseFromArray(payload.getBlob(), payload.getBytes());
    const double time = static_cast<double>(rows.getColumn(0).getInt64()) / kMicros;
    const double x = query.x == Axis::kTime    ? time
                     : query.x == Axis::kStep  ? static_cast<double>(epoch.step())
                     : query.x == Axis::kEpoch ? epoch.epoch()
                                               : epoch.epoch() * query.images_per_epoch;
    const Generation generation(Unsigned(rows.getColumn(2)));
    if (x >= DoneAgainFrom(stretches, generation, query)) continue;
    // What was validated again, also by a start that has not reported a step yet.
    if (query.x != Axis::kTime) std::erase_if(out, [x](const Validation& one) { return one.x >= x; });
    out.push_back({x, {epoch.val_loss(), epoch.val_top1(), epoch.val_top5(), epoch.val_seconds()}});
  }
  rows.reset();
  std::erase_if(out, [&query](const Validation& one) {
    return one.x < query.from.value_or(-kForever) || one.x > query.to.value_or(kForever);
  });
  return out;
}

Curve ValidationCurve(const std::vector<Validation>& validations, size_t figure, size_t points) {
  std::vector<HistoryEntry> x;
  std::vector<HistoryEntry> values;
  for (const auto& one : validations) {
    x.push_back({{one.x, one.x, one.x}});
    values.push_back({{one.figures[figure], one.figures[figure], one.figures[figure]}});
  }
  const uint64_t width = std::max<uint64_t>((values.size() + points - 1) / points, 1);
  return {ValidationFigures()[figure], Points(x, values, width), std::nullopt};
}

/// The wanted names, by where they are from.
struct Wanted {
  std::vector<FigureName> steps;
  std::vector<size_t> epochs;
};

Result<Wanted> WantedOf(const std::vector<std::string>& names) {
  Wanted out;
  const auto& epochs = ValidationFigures();
  for (const auto& figure : StepFigures()) {
    if (names.empty() || std::count(names.begin(), names.end(), figure.name) > 0) out.steps.push_back(figure);
  }
  for (size_t i = 0; i < epochs.size(); ++i) {
    if (names.empty() || std::count(names.begin(), names.end(), epochs[i]) > 0) out.epochs.push_back(i);
  }
  std::vector<std::string> known = epochs;
  for (const auto& figure : StepFigures()) known.emplace_back(figure.name);
  for (const auto& name : names) {
    if (std::count(known.begin(), known.end(), name) > 0) continue;
    Error error{.code = ErrorCode::kInvalidArgument,
                .message = fmt::format("names: there is no figure '{}'", name.substr(0, 100)),
                .hint = fmt::format("there are {}", fmt::join(known, ", "))};
    if (const auto nearest = NearestWord(name, known))
      error.hint = fmt::format("did you mean '{}'?", *nearest);
    return tl::unexpected(std::move(error));
  }
  return out;
}

}  // namespace

const std::vector<std::string>& ValidationFigures() {
  static const std::vector<std::string> names = {"val_loss", "val_top1", "val_top5", "val_seconds"};
  return names;
}

Result<std::vector<Curve>> ReadCurves(Database& database, JobId job, const CurveQuery& query) {
  IMGD_ASSIGN(const Wanted wanted, WantedOf(query.names));
  if (query.x == Axis::kImages && !(query.images_per_epoch > 0)) return std::vector<Curve>();
  auto stretches = StretchesOf(database, job);
  std::vector<Validation> validations;
  if (!wanted.epochs.empty()) validations = Validations(database, job, query, stretches);
  IMGD_ASSIGN(auto curves, StepCurves(database, job, query, wanted.steps, std::move(stretches)));
  for (const size_t figure : wanted.epochs)
    curves.push_back(ValidationCurve(validations, figure, query.points));
  if (query.names.empty()) {
    std::erase_if(curves, [](const Curve& curve) { return !WasReported(curve); });
    return curves;
  }
  std::vector<Curve> ordered;
  for (const auto& name : query.names) {
    const auto found = std::find_if(curves.begin(), curves.end(),
                                    [&name](const Curve& curve) { return curve.name == name; });
    ordered.push_back(found != curves.end() ? *found : Curve{name, {}, std::nullopt});
  }
  return ordered;
}

}  // namespace imgd
