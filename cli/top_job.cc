#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/device_now.h"
#include "cli/format.h"
#include "cli/plot.h"
#include "cli/top_view.h"
#include "cli/watch_view.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

constexpr int kLeastCurve = 4;
constexpr int kMostCurve = 14;
constexpr int kStageBar = 14;
constexpr int kStageColumns = 38;
constexpr int kStageLines = 7;  ///< with their title
constexpr int kNarrowPanel = 26;

/// A line of values of one figure with a title above.
Frame CurvePanel(const v1::GetMetricsResponse& metrics, const std::string& name, const std::string& title,
                 int width, int height, bool utf8) {
  Frame frame = {{Cell(" " + title, Style::kBold)}};
  std::vector<CurvePoint> points;
  for (const auto& series : metrics.series()) {
    if (series.name() != name) continue;
    for (const auto& point : series.points())
      points.push_back({.x = point.x(), .min = point.min(), .max = point.max(), .last = point.last()});
  }
  for (auto& line : Curve(points, width, height, utf8))
    frame.push_back({Cell(std::move(line), Style::kBusy)});
  if (points.empty()) frame.push_back({Cell("   no values yet", Style::kDim)});
  frame.resize(static_cast<size_t>(height) + 1);
  return frame;
}

Frame CurveFrames(const TopJob& open, int height, const Look& look) {
  const auto& job = open.job.job();
  const auto& step = job.last_step();
  const int width = std::max(kNarrowPanel, look.width / 3);
  std::string top1 = fmt::format("top-1 {}", HumanPercent(step.top1()));
  if (job.has_last_epoch()) top1 += fmt::format(", val {}", HumanPercent(job.last_epoch().val_top1()));
  const Frame loss =
      CurvePanel(open.metrics, "loss", "loss " + HumanLoss(step.loss()), width - 1, height, look.utf8);
  const Frame accuracy = CurvePanel(open.metrics, "top1", top1, width - 1, height, look.utf8);
  const std::string speed = SpeedText(step);
  const Frame rate = CurvePanel(open.metrics, "images_per_second",
                                "images/s " + (speed.empty() ? "-" : speed), width - 1, height, look.utf8);
  return SideBySide(SideBySide(loss, width, accuracy, look.utf8), 2 * width, rate, look.utf8);
}

/// Where a step's time goes, a bar each.
Frame StagesFrame(const v1::StepMetrics& step, bool utf8) {
  const auto& times = step.times();
  const double all = step.loader().interval_seconds();
  if (times.steps() == 0 || all <= 0) return {};
  Frame frame = {
      {Cell(fmt::format(" a step of rank 0: {}", HumanMilliseconds(all / times.steps())), Style::kBold)}};
  double named = 0;
  const auto stage = [&](std::string_view name, double seconds, Style style) {
    const double ratio = std::clamp(seconds / all, 0.0, 1.0);
    frame.push_back({Cell(fmt::format("  {:<14}", name)), Cell(Bar(ratio, kStageBar, utf8), style),
                     Cell(fmt::format(" {:3.0f} %", ratio * 100))});
    named += seconds;
  };
  stage("input", times.input_seconds(), Style::kWarn);
  stage("forward", times.forward_seconds(), Style::kGood);
  stage("backward", times.backward_seconds(), Style::kGood);
  stage("communication", times.communication_seconds(), Style::kWarn);
  stage("optimiser", times.optimizer_seconds(), Style::kGood);
  stage("other", std::max(0.0, all - named), Style::kDim);
  return frame;
}

/// NaN, too, where another job has the device by now.
double BusyRatioOf(const TopData& data, uint64_t job, const std::string& node_name, uint32_t index) {
  for (const auto& node : data.nodes) {
    if (node.name() != node_name) continue;
    for (const auto& device : node.devices()) {
      if (device.index() == index && device.job_id() == job) return NowOf(node, device).busy_ratio;
    }
  }
  return NAN;
}

/// "node-a  ranks 0-7  82 % busy".
FrameLine PlacementLine(const TopData& data, uint64_t job, const v1::Placement& placement) {
  const uint32_t ranks = RanksOn(placement);
  const uint32_t first = placement.first_rank();
  std::string text = fmt::format("  {}  ", placement.node());
  text += ranks == 1 ? fmt::format("rank {}", first) : fmt::format("ranks {}-{}", first, first + ranks - 1);
  KnownSum busy;
  for (const uint32_t index : placement.devices()) busy.Add(BusyRatioOf(data, job, placement.node(), index));
  if (busy.count > 0) text += fmt::format("  {:.0f} % busy", busy.Mean() * 100);
  return {Cell(text)};
}

Frame RanksFrame(const TopData& data, const v1::Job& job, int width, int height) {
  if (job.placements().empty()) return {};
  const bool holds = HoldsNodes(job);
  Frame frame = {
      {Cell(fmt::format(" {}{}", holds ? "" : "ran as ", Count(RanksNow(job), "rank")), Style::kBold)}};
  for (auto& text : Wrapped(RankSpreadText(job.last_step().ranks()), width - 4))
    frame.push_back({Cell("  " + std::move(text))});
  const int room = std::max(1, height - static_cast<int>(frame.size()));
  const bool all = job.placements_size() <= room;
  const int shown = all ? job.placements_size() : std::max(0, room - 1);
  for (int i = 0; i < shown; ++i) frame.push_back(PlacementLine(data, job.id(), job.placements(i)));
  if (!all)
    frame.push_back({Cell(
        fmt::format("  and {}", Count(static_cast<uint64_t>(job.placements_size() - shown), "more node")),
        Style::kDim)});
  frame.resize(std::min(frame.size(), static_cast<size_t>(height)));
  return frame;
}

/// What became of a job that has no figures.
Frame HistoryFrame(const v1::GetJobResponse& job, int height) {
  Frame frame = {{Cell(" what happened", Style::kBold)}};
  const int shown = std::min(height - 1, job.history_size());
  for (int i = job.history_size() - shown; i < job.history_size(); ++i) {
    const auto& event = job.history(i);
    frame.push_back({Cell("  " + LocalClock(event.time_us()) + " ", Style::kDim),
                     Cell(EventText(event), StyleOf(event))});
  }
  return frame;
}

FrameLine LogLineOf(const v1::LogLine& line, bool ranks) {
  FrameLine out = {Cell("  " + LocalClock(line.time_us()) + " ", Style::kDim)};
  if (ranks)
    out.emplace_back(fmt::format("[{}] ", line.rank()), line.rank() % 2 == 0 ? Style::kBusy : Style::kWarn);
  out.emplace_back(Printable(line.text()));
  return out;
}

Frame LogFrame(const TopData& data, const TopState& state, int height) {
  const auto lines = ShownLines(state, data);
  const bool ranks = MostRanks(data.job->job.job()) > 1;
  const int back = std::clamp(state.lines_back, 0, std::max(0, static_cast<int>(lines.size()) - 1));
  std::string title = " log";
  if (back > 0) title += fmt::format(", {} further down", Count(static_cast<uint64_t>(back), "line"));
  Frame frame = {{Cell(title, Style::kBold)}};
  const int end = static_cast<int>(lines.size()) - back;
  for (int i = std::max(0, end - (height - 1)); i < end; ++i)
    frame.push_back(LogLineOf(*lines[static_cast<size_t>(i)], ranks));
  if (lines.empty())
    frame.push_back({Cell(state.log_filter.empty() ? "  nothing yet" : "  no line has that", Style::kDim)});
  return frame;
}

void Append(Frame& frame, const Frame& more) { frame.insert(frame.end(), more.begin(), more.end()); }

/// Curves, stages and ranks: what a job that trains has.
void AddFigureFrames(const TopData& data, Frame& frame, const Look& look) {
  const auto& job = data.job->job.job();
  const Frame stages = StagesFrame(job.last_step(), look.utf8);
  const int left = look.height - static_cast<int>(frame.size());
  Append(frame, CurveFrames(*data.job, std::clamp((left - kStageLines) / 3, kLeastCurve, kMostCurve), look));
  const Frame ranks = RanksFrame(data, job, look.width - (stages.empty() ? 0 : kStageColumns), kStageLines);
  Append(frame, stages.empty() ? ranks : SideBySide(stages, kStageColumns, ranks, look.utf8));
}

}  // namespace

Frame TopJobView(const TopData& data, const TopState& state, int64_t now_us, const Look& look) {
  Frame frame = TopTrouble(data);
  const bool there = data.job && data.job->job.job().id() == state.open_job;
  if (!there) {
    frame.push_back({Cell(fmt::format("job {}", state.open_job), Style::kBold)});
    frame.push_back({Cell(data.job_problem.empty() ? "  asking imgd for it" : "  " + data.job_problem,
                          data.job_problem.empty() ? Style::kDim : Style::kBad)});
    return frame;
  }
  const auto& job = data.job->job.job();
  if (!data.job_problem.empty())
    frame.push_back({Cell(data.job_problem + "; this is what it was last", Style::kBad)});
  Append(frame, BlockLines(job, data.job->total_epochs, now_us, look.width, look.utf8));
  if (job.has_last_step()) {
    AddFigureFrames(data, frame, look);
  } else {
    const int room = (look.height - static_cast<int>(frame.size())) / 2;
    Append(frame, HistoryFrame(data.job->job, room));
    Append(frame, RanksFrame(data, job, look.width, kLeastCurve));
  }
  Append(frame, LogFrame(data, state, std::max(2, look.height - static_cast<int>(frame.size()))));
  for (auto& line : frame) line = Fitted(line, look.width, look.utf8);
  return frame;
}

}  // namespace imgd::cli
