#include <fmt/format.h>

#include <algorithm>

#include "cli/format.h"
#include "cli/plot.h"
#include "cli/top_view.h"
#include "cli/words.h"

namespace imgd::cli {
namespace {

constexpr int kStateWidth = 10;
constexpr int kRateWidth = 8;
constexpr int kLossWidth = 6;
constexpr int kTop1Width = 6;
constexpr int kEtaWidth = 6;
constexpr int kPercentWidth = 5;
constexpr int kJobBar = 8;  ///< of the progress, where there is room
constexpr int kWide = 100;  ///< columns from which there is
constexpr int kOwnerWidth = 10;
constexpr int kWider = 120;  ///< columns from which the owner is shown
constexpr int kLeastName = 8;
constexpr int kLeastSpark = 8;
constexpr int kMostSpark = 24;

/// The widths that depend on what there is to show.
struct JobWidths {
  int id = 2;
  int name = 4;
  int spark = kLeastSpark;
  bool bar = false;
  bool owner = false;
};

JobWidths WidthsOf(const std::vector<const v1::Job*>& jobs, const Look& look) {
  JobWidths widths{.bar = look.width >= kWide, .owner = look.width >= kWider};
  for (const auto* job : jobs) {
    widths.id = std::max(widths.id, static_cast<int>(std::to_string(job->id()).size()));
    widths.name = std::max(widths.name, DisplayWidth(job->name()));
  }
  int fixed = 2 + widths.id + 2 + 2 + kStateWidth + 2 + kPercentWidth + 2 + kRateWidth + 2 + kLossWidth + 1 +
              2 + kTop1Width + 2 + kEtaWidth + 1;
  if (widths.bar) fixed += kJobBar + 1;
  if (widths.owner) fixed += kOwnerWidth + 2;
  const int left = look.width - fixed;
  widths.name = std::min(widths.name, std::max(kLeastName, left - kLeastSpark));
  widths.spark = std::clamp(left - widths.name, kLeastSpark, kMostSpark);
  return widths;
}

/// Figures say more of it than the reason for its state does.
bool ShowsFigures(const v1::Job& job) {
  return job.has_last_step() &&
         (job.state() == v1::JOB_STATE_RUNNING || job.state() == v1::JOB_STATE_COMPLETED);
}

void AddFigures(const TopData& data, const v1::Job& job, const JobWidths& widths, bool utf8,
                FrameLine& line) {
  const auto& step = job.last_step();
  const bool runs = job.state() == v1::JOB_STATE_RUNNING;
  const double done = DoneRatio(job).value_or(0);
  const auto right = [&](const std::string& text, int width) {
    return "  " + Padded(text, width, utf8, true);
  };
  line.emplace_back("  ");
  if (widths.bar) line.emplace_back(Bar(done, kJobBar, utf8) + " ", StyleOf(job.state()));
  line.emplace_back(fmt::format("{:3} %", static_cast<int>(done * 100)));
  const std::string speed = SpeedText(step);
  line.emplace_back(right(runs && !speed.empty() ? speed : "-", kRateWidth));
  line.emplace_back(right(HumanLoss(step.loss()), kLossWidth));
  const auto losses = data.losses.find(job.id());
  const std::string spark = losses == data.losses.end() ? "" : Spark(losses->second, widths.spark, utf8);
  line.emplace_back(" " + Padded(spark, widths.spark, utf8), Style::kBusy);
  line.emplace_back(
      right(job.has_last_epoch() ? HumanPercent(job.last_epoch().val_top1()) : "-", kTop1Width));
  const std::string left = TimeLeftText(step);
  line.emplace_back(right(runs && !left.empty() ? left : "-", kEtaWidth));
}

FrameLine JobLine(const TopData& data, const v1::Job& job, const JobWidths& widths, bool chosen,
                  const Look& look) {
  FrameLine line = {Cell(chosen ? "> " : "  ", Style::kBold),
                    Cell(fmt::format("{:>{}}  ", job.id(), widths.id)),
                    Cell(Padded(job.name(), widths.name, look.utf8) + "  "),
                    Cell(Padded(StateName(job.state()), kStateWidth, look.utf8), StyleOf(job.state()))};
  if (widths.owner) line.emplace_back("  " + Padded(job.owner(), kOwnerWidth, look.utf8), Style::kDim);
  if (ShowsFigures(job)) {
    AddFigures(data, job, widths, look.utf8, line);
  } else {
    line.emplace_back("  " + job.reason_text(), Style::kDim);
  }
  line = Fitted(line, look.width, look.utf8);
  if (!chosen) return line;
  std::string text;
  for (const auto& cell : line) text += cell.text;
  return {Cell(std::move(text), Style::kChosen)};
}

FrameLine JobsHead(const JobWidths& widths, const Look& look) {
  std::string text =
      fmt::format("  {:>{}}  {:<{}}  {:<{}}", "ID", widths.id, "NAME", widths.name, "STATE", kStateWidth);
  if (widths.owner) text += fmt::format("  {:<{}}", "OWNER", kOwnerWidth);
  text += fmt::format("  {:<{}}  {:>{}}  {:>{}} {:<{}}  {:>{}}  {:>{}}", "DONE",
                      kPercentWidth + (widths.bar ? kJobBar + 1 : 0), "IMAGES/S", kRateWidth, "LOSS",
                      kLossWidth, "", widths.spark, "TOP-1", kTop1Width, "ETA", kEtaWidth);
  return Fitted({Cell(text, Style::kDim)}, look.width, look.utf8);
}

FrameLine NothingShown(const TopState& state) {
  return {Cell(state.filter.empty() ? "  no jobs yet; imgcli submit job.yaml makes one"
                                    : fmt::format("  no job has '{}'; Esc shows all", state.filter),
               Style::kDim)};
}

}  // namespace

Frame TopJobs(const TopData& data, const TopState& state, const Look& look) {
  const auto jobs = ShownJobs(state, data);
  const auto widths = WidthsOf(jobs, look);
  Frame frame = {JobsHead(widths, look)};
  if (jobs.empty()) {
    frame.push_back(NothingShown(state));
    return frame;
  }
  const bool marks = look.height > 0;
  const size_t chosen = ChosenRow(state, jobs);
  const size_t room = look.height == 0 ? jobs.size() : static_cast<size_t>(std::max(1, look.height - 1));
  // The chosen one keeps to the middle of a list that is too long.
  size_t from = chosen > room / 2 ? chosen - room / 2 : 0;
  from = std::min(from, jobs.size() > room ? jobs.size() - room : 0);
  for (size_t i = from; i < std::min(jobs.size(), from + room); ++i)
    frame.push_back(JobLine(data, *jobs[i], widths, marks && i == chosen, look));
  return frame;
}

}  // namespace imgd::cli
