#include "cli/watch_view.h"

#include <algorithm>

#include "cli/format.h"
#include "cli/frame.h"
#include "cli/serialize.h"
#include "cli/words.h"
#include "common/job_file.h"

namespace imgd::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration kRedrawEvery = 100ms;
constexpr size_t kMostReasonLines = 4;

std::string SituationText(const v1::Job& job) {
  std::string text = fmt::format("{} is {}", JobTitle(job), StateName(job.state()));
  if (!job.reason_text().empty()) text += fmt::format(": {}", job.reason_text());
  // Its reason says so itself while it runs as it began.
  if (const auto by_hand = ByHandText(job); !job.reason_text().ends_with(by_hand))
    text += fmt::format(" ({})", by_hand);
  if (const auto progress = ProgressText(job); !progress.empty()) text += fmt::format(", {}", progress);
  return Printable(text);
}

std::string OutageText(const Errors& errors) {
  return fmt::format("{}; the job goes on without it, and so does the watching once imgd is back",
                     Printable(errors.front().message));
}

/// One line for each thing that happens.
class LineView final : public WatchView {
 public:
  explicit LineView(Context& context) : context_(context) {}

  void OnBegin(const v1::GetJobResponse& job, bool replay) override {
    if (!replay && !IsFinal(job.job().state())) Line(NowMicros(), SituationText(job.job()), Style::kPlain);
  }
  void OnEvent(const v1::JobEvent& event, const v1::Job&) override {
    Line(event.time_us(), EventText(event), StyleOf(event));
  }
  void OnReason(const v1::Job& job) override { Line(NowMicros(), SituationText(job), Style::kPlain); }
  void OnOutage(const v1::Job&, const Errors& errors) override {
    context_.Say(OutageText(errors), Style::kWarn);
  }
  void OnBack(const v1::Job& job) override {
    context_.Say(fmt::format("imgd is back: {}", SituationText(job)), Style::kGood);
  }
  void OnEnd(const v1::GetJobResponse& job) override {
    for (const auto& line : EndLines(job)) context_.out() << line << std::endl;
  }

 private:
  void Line(int64_t time_us, const std::string& text, Style style) {
    context_.out() << LocalClock(time_us) << ' ' << Paint(Printable(text), style, context_.terminal().color)
                   << std::endl;
  }

  Context& context_;
};

/// The job in place at the bottom of the terminal; what is worth keeping scrolls up above it.
class BlockView final : public WatchView {
 public:
  explicit BlockView(Context& context) : context_(context) {}
  ~BlockView() override { context_.out().flush(); }

  void OnBegin(const v1::GetJobResponse& job, bool) override {
    total_epochs_ = TotalEpochs(job.job());
    if (!IsFinal(job.job().state())) Draw(job.job());
  }
  void OnEvent(const v1::JobEvent& event, const v1::Job& job) override {
    const auto kind = event.event_case();
    if (kind != v1::JobEvent::kStep && kind != v1::JobEvent::kCheckpoint) {
      Erase();
      Keep(event.time_us(), EventText(event), StyleOf(event));
    }
    const Instant now = std::chrono::steady_clock::now();
    if (lines_ == 0 || now - drawn_ > kRedrawEvery) Draw(job);
  }
  void OnReason(const v1::Job& job) override { Draw(job); }
  void OnIdle(const v1::Job& job) override { Draw(job); }
  void OnOutage(const v1::Job&, const Errors& errors) override {
    Erase();
    context_.Say(OutageText(errors), Style::kWarn);
  }
  void OnBack(const v1::Job& job) override {
    Erase();
    context_.Say(fmt::format("imgd is back: {}", SituationText(job)), Style::kGood);
  }
  void OnEnd(const v1::GetJobResponse& job) override {
    Erase();
    bool first = true;
    for (const auto& line : EndLines(job)) {
      context_.out() << Paint(line, first ? StyleOf(job.job().state()) : Style::kPlain,
                              context_.terminal().color)
                     << '\n';
      first = false;
    }
  }
  void Close() override { lines_ = 0; }

 private:
  void Keep(int64_t time_us, const std::string& text, Style style) {
    context_.out() << Paint(LocalClock(time_us), Style::kDim, context_.terminal().color) << ' '
                   << Paint(Printable(text), style, context_.terminal().color) << '\n';
  }

  void Erase() {
    if (lines_ > 0) context_.out() << fmt::format("\x1b[{}A\r\x1b[J", lines_);
    lines_ = 0;
  }

  void Draw(const v1::Job& job) {
    const auto& terminal = context_.terminal();
    const int width = std::max(20, terminal.Width());
    Erase();
    for (const auto& line : BlockLines(job, total_epochs_, NowMicros(), width, terminal.utf8)) {
      // One column stays free: some terminals wrap when the last one is written.
      int left = width - 1;
      for (const auto& cell : line) {
        const auto text = Truncate(cell.text, left, terminal.utf8);
        left -= DisplayWidth(text);
        context_.out() << Paint(text, cell.style, terminal.color);
      }
      context_.out() << '\n';
      ++lines_;
    }
    context_.out().flush();
    drawn_ = std::chrono::steady_clock::now();
  }

  Context& context_;
  double total_epochs_ = 0;
  int lines_ = 0;  ///< of the block that is on the screen
  Instant drawn_{};
};

/// One JSON object or YAML document for each event.
class DataView final : public WatchView {
 public:
  DataView(Context& context, OutputFormat format) : context_(context), format_(format) {}

  void OnBegin(const v1::GetJobResponse&, bool) override {}
  void OnEvent(const v1::JobEvent& event, const v1::Job&) override {
    PrintItem(context_.out(), event, format_);
    context_.out().flush();
  }
  void OnReason(const v1::Job&) override {}
  void OnOutage(const v1::Job&, const Errors& errors) override {
    context_.Say(OutageText(errors), Style::kWarn);
  }
  void OnBack(const v1::Job&) override { context_.Say("imgd is back", Style::kGood); }
  void OnEnd(const v1::GetJobResponse&) override {}

 private:
  Context& context_;
  const OutputFormat format_;
};

/// Nothing but the end and what keeps it from coming.
class QuietView final : public WatchView {
 public:
  explicit QuietView(Context& context) : context_(context) {}

  void OnBegin(const v1::GetJobResponse&, bool) override {}
  void OnEvent(const v1::JobEvent&, const v1::Job&) override {}
  void OnReason(const v1::Job&) override {}
  void OnOutage(const v1::Job&, const Errors& errors) override {
    context_.Say(OutageText(errors), Style::kWarn);
  }
  void OnBack(const v1::Job&) override { context_.Say("imgd is back", Style::kGood); }
  void OnEnd(const v1::GetJobResponse& job) override {
    for (const auto& line : EndLines(job)) context_.Say(line);
  }

 private:
  Context& context_;
};

std::string EpochsText(double epoch, double total_epochs) {
  return total_epochs > 0 ? fmt::format("epoch {:.2f}/{:.0f}", epoch, total_epochs)
                          : fmt::format("epoch {:.2f}", epoch);
}

std::vector<Cell> ProgressCells(const v1::Job& job, double total_epochs, int width, bool utf8) {
  const auto& step = job.last_step();
  const double ratio = DoneRatio(job).value_or(0);
  const int bar = std::clamp(width - 60, 8, 40);
  std::string text = fmt::format("  {:3} %  {}  step {}/{}", static_cast<int>(ratio * 100),
                                 EpochsText(step.epoch(), total_epochs), step.step(), step.total_steps());
  const std::string left = TimeLeftText(step);
  if (job.state() == v1::JOB_STATE_RUNNING && !left.empty()) text += fmt::format("  eta {}", left);
  return {Cell("  "), Cell(Bar(ratio, bar, utf8), StyleOf(job.state())), Cell(text)};
}

}  // namespace

double TotalEpochs(const v1::Job& job) {
  const auto spec = ParseJobFile(job.job_yaml(), "");
  return spec ? spec->train.epochs : 0;
}

std::vector<std::vector<Cell>> BlockLines(const v1::Job& job, double total_epochs, int64_t now_us, int width,
                                          bool utf8) {
  std::vector<std::vector<Cell>> lines;
  std::vector<Cell> head = {Cell(JobTitle(job), Style::kBold), Cell("  "),
                            Cell(StateName(job.state()), StyleOf(job.state()))};
  if (job.generation() > 1) head.emplace_back(fmt::format("  start {}", job.generation()), Style::kWarn);
  const bool queued = job.state() == v1::JOB_STATE_QUEUED;
  const auto ran_us = static_cast<int64_t>(RanSeconds(job, now_us) * 1e6);
  const int64_t since = queued || job.started_us() == 0 ? job.submitted_us() : now_us - ran_us;
  head.emplace_back(fmt::format("  {}{}", queued ? "for " : "", HumanAge(now_us, since)), Style::kDim);
  lines.push_back(std::move(head));
  // What a job waits for is a long sentence, and the end of it matters.
  for (auto& text : Wrapped(Printable(job.reason_text()), width - 3, kMostReasonLines))
    lines.push_back({Cell("  "), Cell(std::move(text), Style::kDim)});
  if (job.has_last_step()) {
    lines.push_back(ProgressCells(job, total_epochs, width, utf8));
    lines.push_back({Cell(fmt::format("  {}", TrainingText(job.last_step())))});
  }
  if (job.has_last_epoch()) {
    lines.push_back(
        {Cell(fmt::format("  validation after epoch {}: {}, loss {}", job.last_epoch().epoch(),
                          AccuracyText(job.last_epoch()), HumanLoss(job.last_epoch().val_loss())))});
  }
  if (job.has_last_checkpoint()) {
    lines.push_back({Cell(fmt::format("  checkpoint at step {}, {}", job.last_checkpoint().step(),
                                      HumanBytes(job.last_checkpoint().size_bytes())),
                          Style::kDim)});
  }
  return lines;
}

std::vector<std::string> EndLines(const v1::GetJobResponse& response) {
  const auto& job = response.job();
  std::string first = fmt::format("{} {}", JobTitle(job), StateName(job.state()));
  if (const double seconds = RanSeconds(response, job.ended_us()); seconds > 0) {
    first += fmt::format(" after {}", HumanDuration(seconds));
  }
  if (job.has_last_epoch()) first += fmt::format(": {}", AccuracyText(job.last_epoch()));
  std::vector<std::string> lines = {first};
  if (job.state() == v1::JOB_STATE_COMPLETED) return lines;
  if (!job.reason_text().empty()) lines.push_back(fmt::format("  {}", Printable(job.reason_text())));
  if (job.state() == v1::JOB_STATE_FAILED) {
    for (const auto& exit : job.rank_exits()) {
      if (EndedWell(exit)) continue;
      const auto node = NodeOfRank(job, exit.rank());
      lines.push_back(fmt::format("  rank {}{}: {}", exit.rank(), node.empty() ? "" : " on " + node,
                                  Printable(RankExitText(exit))));
    }
  }
  return lines;
}

std::unique_ptr<WatchView> MakeWatchView(Context& context, const WatchOptions& options) {
  if (options.quiet) return std::make_unique<QuietView>(context);
  if (options.format == OutputFormat::kJson || options.format == OutputFormat::kYaml) {
    return std::make_unique<DataView>(context, options.format);
  }
  if (context.terminal().is_terminal && !options.no_follow) return std::make_unique<BlockView>(context);
  return std::make_unique<LineView>(context);
}

}  // namespace imgd::cli
