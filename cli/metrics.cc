#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/job_ref.h"
#include "cli/plot.h"
#include "cli/serialize.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

constexpr int kPlotLines = 12;
constexpr int kMostPlotColumns = 100;
constexpr int kAxisColumns = 8;  ///< what a curve has left of it
constexpr uint32_t kFinestPoints = 10'000;

struct MetricsOptions {
  std::string job;
  std::vector<std::string> names;
  std::string x = "step";
  std::string format = "table";
  uint32_t points = 1000;
  bool plot = false;
};

/// A NaN's sign tells nothing.
double Shown(double value) { return std::isnan(value) ? NAN : value; }

void PrintCsv(std::ostream& out, const std::string& x, const v1::GetMetricsResponse& metrics) {
  out << fmt::format("name,{},min,max,last\n", x);
  for (const auto& series : metrics.series()) {
    for (const auto& point : series.points())
      out << fmt::format("{},{},{},{},{}\n", series.name(), point.x(), Shown(point.min()), Shown(point.max()),
                         Shown(point.last()));
  }
}

/// The first value of each figure of an answer. A point has but the last of its values: where the first one
/// stands for several, the figure is asked for again up to there, until they are points of their own.
Reply<std::map<std::string, double>> FirstValues(Client& client, v1::GetMetricsRequest request,
                                                 v1::GetMetricsResponse metrics) {
  std::map<std::string, double> first;
  request.set_points(kFinestPoints);
  while (true) {
    request.clear_names();
    double to = -INFINITY;
    for (const auto& series : metrics.series()) {
      if (series.points().empty()) continue;
      first[series.name()] = series.points(0).last();
      if (series.values() <= static_cast<uint64_t>(series.points_size())) continue;
      request.add_names(series.name());
      to = std::max(to, series.points(0).x());
    }
    // Values at one and the same place are not told apart.
    if (request.names().empty() || (request.has_to() && to >= request.to())) return first;
    request.set_to(to);
    auto finer = client.GetMetrics(request);
    if (!finer) return tl::unexpected(std::move(finer).error());
    metrics = std::move(*finer);
  }
}

void PrintMetricsTable(Context& context, const v1::GetMetricsResponse& metrics,
                       const std::map<std::string, double>& first) {
  Table table(
      {{"FIGURE"}, {"VALUES", true}, {"FIRST", true}, {"LAST", true}, {"LEAST", true}, {"GREATEST", true}});
  const auto number = [](double value) { return fmt::format("{:.4g}", Shown(value)); };
  for (const auto& series : metrics.series()) {
    if (series.points().empty()) {
      table.Add({series.name(), "0", "", "", "", ""});
      continue;
    }
    double least = series.points(0).min();
    double greatest = series.points(0).max();
    for (const auto& point : series.points()) {
      least = std::fmin(least, point.min());
      greatest = std::fmax(greatest, point.max());
    }
    table.Add({series.name(), std::to_string(series.values()), number(first.at(series.name())),
               number(series.points().rbegin()->last()), number(least), number(greatest)});
  }
  table.Print(context.out(), context.terminal());
}

std::vector<CurvePoint> CurvePointsOf(const v1::MetricSeries& series) {
  std::vector<CurvePoint> points;
  for (const auto& point : series.points())
    points.push_back({.x = point.x(), .min = point.min(), .max = point.max(), .last = point.last()});
  return points;
}

/// Under a curve: the least and the greatest value of what it is laid out by.
std::string XAxis(const v1::MetricSeries& series, const std::string& x, int width) {
  const auto label = [&](double value) {
    return x == "time" ? LocalTime(static_cast<int64_t>(value * 1e6)) : fmt::format("{:.6g}", value);
  };
  const auto is_before = [](const v1::MetricPoint& a, const v1::MetricPoint& b) { return a.x() < b.x(); };
  const auto ends = std::minmax_element(series.points().begin(), series.points().end(), is_before);
  const std::string from = label(ends.first->x());
  const std::string to = fmt::format("{} {}", x, label(ends.second->x()));
  const int gap = std::max(2, width - kAxisColumns - static_cast<int>(from.size() + to.size()));
  return std::string(kAxisColumns, ' ') + from + std::string(static_cast<size_t>(gap), ' ') + to;
}

/// A curve for each figure that has numbers.
void PrintPlots(Context& context, const std::string& x, const v1::GetMetricsResponse& metrics) {
  const int columns = context.terminal().Width();
  const int width = std::min(columns > 0 ? columns - 1 : kMostPlotColumns, kMostPlotColumns);
  bool first = true;
  for (const auto& series : metrics.series()) {
    const auto lines = Curve(CurvePointsOf(series), width, kPlotLines, context.terminal().utf8);
    if (lines.empty()) {
      context.Say(fmt::format("{} has no number to draw", series.name()));
      continue;
    }
    if (!first) context.out() << '\n';
    first = false;
    context.out() << Paint(series.name(), Style::kBold, context.terminal().color) << '\n';
    for (const auto& line : lines) context.out() << line << '\n';
    context.out() << XAxis(series, x, width) << '\n';
  }
}

bool HasNumber(const v1::MetricSeries& series) {
  const auto& points = series.points();
  return std::any_of(points.begin(), points.end(),
                     [](const auto& point) { return !std::isnan(point.min()); });
}

/// Takes the figures that the job did not report out of the answer, and returns their names. One without a
/// number is among the reported ones where it was nan throughout.
std::vector<std::string> TakeOutAbsent(const v1::GetMetricsResponse& reported,
                                       v1::GetMetricsResponse& metrics) {
  std::vector<std::string> absent;
  auto& all = *metrics.mutable_series();
  for (int i = all.size() - 1; i >= 0; --i) {
    const auto& name = all[i].name();
    const auto is_it = [&](const v1::MetricSeries& series) { return series.name() == name; };
    if (HasNumber(all[i]) || std::any_of(reported.series().begin(), reported.series().end(), is_it)) continue;
    absent.insert(absent.begin(), name);
    all.DeleteSubrange(i, 1);
  }
  return absent;
}

bool HasEnded(Client& client, uint64_t job) {
  const auto now = client.GetJob(job);
  return now && IsFinal(now->job().state());
}

constexpr const char* kNeverReported = "it never did, or metrics_kept_for has removed them";

Error NotReported(uint64_t job, const std::vector<std::string>& absent,
                  const v1::GetMetricsResponse& reported) {
  std::vector<std::string> names;
  for (const auto& series : reported.series()) names.push_back(series.name());
  return {.code = ErrorCode::kNotFound,
          .message = fmt::format("job {} has reported nothing as {}", job, fmt::join(absent, ", ")),
          .hint = names.empty() ? kNeverReported : fmt::format("it has reported {}", fmt::join(names, ", "))};
}

/// `metrics`: the answer to `request`.
Reply<void> PrintMetrics(Context& context, Client& client, const MetricsOptions& options,
                         const v1::GetMetricsRequest& request, const v1::GetMetricsResponse& metrics) {
  const auto is_empty = [](const v1::MetricSeries& series) { return series.points().empty(); };
  const bool none = std::all_of(metrics.series().begin(), metrics.series().end(), is_empty);
  if (none && options.format == "table") {
    context.Say(fmt::format("job {} has reported no figures: {}", request.id(),
                            HasEnded(client, request.id()) ? kNeverReported : "it has not got so far yet"));
  } else if (options.format == "json") {
    PrintDocument(context.out(), ToJson(metrics), OutputFormat::kJson);
  } else if (options.format == "csv") {
    PrintCsv(context.out(), options.x, metrics);
  } else if (options.plot) {
    PrintPlots(context, options.x, metrics);
  } else {
    const auto first = FirstValues(client, request, metrics);
    if (!first) return tl::unexpected(first.error());
    PrintMetricsTable(context, metrics, *first);
  }
  return {};
}

int RunMetrics(Context& context, const MetricsOptions& options) {
  if (options.plot && options.format != "table") {
    return context.Fail(
        {Error{.code = ErrorCode::kInvalidArgument,
               .message = fmt::format("--plot and -o {} exclude each other", options.format)}});
  }
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  auto id = FindJob(**client, options.job);
  if (!id) return context.Fail(id.error());
  v1::GetMetricsRequest request;
  request.set_id(*id);
  request.set_x(options.x);
  request.set_points(options.points);
  for (const auto& name : options.names) request.add_names(name);
  auto metrics = (*client)->GetMetrics(request);
  if (!metrics) return context.Fail(metrics.error());
  std::vector<std::string> absent;
  v1::GetMetricsResponse reported;
  if (!options.names.empty() && !std::all_of(metrics->series().begin(), metrics->series().end(), HasNumber)) {
    request.clear_names();
    request.set_points(1);
    auto all = (*client)->GetMetrics(request);
    if (!all) return context.Fail(all.error());
    reported = std::move(*all);
    absent = TakeOutAbsent(reported, *metrics);
    // Who asks again and again from a job's start on, as scripts do, makes no mistake.
    if (reported.series().empty() && !HasEnded(**client, *id)) absent.clear();
  }
  if (absent.empty() || !metrics->series().empty()) {
    const auto printed = PrintMetrics(context, **client, options, request, *metrics);
    if (!printed) return context.Fail(printed.error());
  }
  return absent.empty() ? 0 : context.Fail({NotReported(*id, absent, reported)});
}

}  // namespace

void AddMetricsCommand(Command app, Context& context) {
  auto options = std::make_shared<MetricsOptions>();
  Command command = app.AddSubcommand("metrics", "Show what a job's figures were, as a table, CSV or curves");
  AddJobArgument(command, options->job);
  command
      .AddOption("--names", options->names,
                 "Which figures, with commas between (default: all that there are)")
      .SplitAtCommas()
      .ValueName("NAMES");
  command.AddOption("-x", options->x, "By what: step, epoch, images or time (default step)")
      .OneOf({"step", "epoch", "images", "time"})
      .ValueName("AXIS");
  command.AddNumber("--points", "The most points of each figure (default 1000); no peak is left out", 1,
                    10'000, [options](uint64_t points) { options->points = static_cast<uint32_t>(points); });
  command.AddOption("-o,--output", options->format, "table, csv, json (default table)")
      .OneOf({"table", "csv", "json"})
      .ValueName("FORMAT");
  command.AddFlag("--plot", options->plot, "Draw a curve of each");
  command.Footer(
      "A point stands for all values since the one before: its least, its greatest and its last. Steps that\n"
      "a later start of the job did again count once, but by time all do (docs/api.md has the names). It "
      "ends\n"
      "with 3 where the job has not reported what --names asks for, but has reported something, or has "
      "ended.\n\n"
      "Examples:\n"
      "  imgcli metrics 12 --names loss,top1 --plot\n"
      "  imgcli metrics rn50 -x epoch --points 10000 -o csv > rn50.csv");
  command.Runs([&context, options] { return RunMetrics(context, *options); });
}

}  // namespace imgd::cli
