#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/serialize.h"
#include "cli/sweep_ref.h"
#include "cli/words.h"
#include "common/utf8.h"

namespace imgd::cli {

Reply<v1::Sweep> FindSweep(Client& client, const std::string& reference) {
  v1::GetSweepRequest request;
  uint64_t number = 0;
  const char* end = reference.data() + reference.size();
  const auto parsed = std::from_chars(reference.data(), end, number);
  if (parsed.ec == std::errc() && parsed.ptr == end) {
    request.set_id(number);
  } else {
    request.set_name(ToUtf8(reference));
  }
  auto answer = client.GetSweep(request);
  if (!answer) return tl::unexpected(std::move(answer).error());
  return std::move(*answer->mutable_sweep());
}

std::string SweepTitle(const v1::Sweep& sweep) {
  return fmt::format("sweep {} ({})", sweep.id(), Printable(sweep.name()));
}

namespace {

/// A figure that jobs are compared by.
struct Measure {
  std::string title;  ///< of its column
  bool max = true;
  double (v1::EpochMetrics::*of)() const;
  bool is_share = true;
};

std::vector<Measure> AllMeasures() {
  return {{"TOP-1", true, &v1::EpochMetrics::val_top1},
          {"TOP-5", true, &v1::EpochMetrics::val_top5},
          {"VAL LOSS", false, &v1::EpochMetrics::val_loss, false}};
}

/// The halving's figure, or top-1.
Measure MeasureOf(const v1::Sweep& sweep) {
  const std::string& metric = sweep.halving().metric();
  return AllMeasures()[metric == "loss" ? 2 : metric == "top5" ? 1 : 0];
}

/// Of the newest validation; empty before the first.
std::string FigureOf(const v1::Job& job, const Measure& measure) {
  if (!job.has_last_epoch()) return "";
  const double value = (job.last_epoch().*measure.of)();
  return measure.is_share ? HumanPercent(value) : HumanLoss(value);
}

constexpr Duration kAwayPause = std::chrono::seconds(2);  ///< between looks whether imgd is back

Reply<std::vector<v1::Job>> JobsOf(Client& client, const v1::Sweep& sweep) {
  constexpr uint32_t kPage = 1000;
  v1::ListJobsRequest request;
  request.set_sweep_id(sweep.id());
  request.set_page_size(kPage);
  std::vector<v1::Job> jobs;
  do {
    auto page = client.ListJobs(request);
    if (!page) return tl::unexpected(std::move(page).error());
    for (auto& job : *page->mutable_jobs()) jobs.push_back(std::move(job));
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  std::reverse(jobs.begin(), jobs.end());
  return jobs;
}

/// The job with the best newest figure; null where none has one.
const v1::Job* BestOf(const std::vector<v1::Job>& jobs, const Measure& measure) {
  const v1::Job* best = nullptr;
  for (const auto& job : jobs) {
    if (!job.has_last_epoch()) continue;
    const double value = (job.last_epoch().*measure.of)();
    if (std::isnan(value)) continue;
    const double found = best == nullptr ? 0 : (best->last_epoch().*measure.of)();
    if (best == nullptr || (measure.max ? value > found : value < found)) best = &job;
  }
  return best;
}

/// "3 COMPLETED, 2 RUNNING, 4 QUEUED".
std::string StatesText(const std::vector<v1::Job>& jobs) {
  std::map<v1::JobState, size_t> counts;
  for (const auto& job : jobs) ++counts[job.state()];
  std::string text;
  for (const auto& [state, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, StateName(state));
  return text;
}

void PrintHead(Context& context, const v1::Sweep& sweep, const std::vector<v1::Job>& jobs) {
  context.out() << Paint(SweepTitle(sweep), Style::kBold, context.terminal().color)
                << fmt::format("  {}: {}{}\n", Count(sweep.members(), "job"), StatesText(jobs),
                               sweep.max_running() > 0
                                   ? fmt::format("; at most {} at once", sweep.max_running())
                                   : "");
  for (const auto& rung : sweep.halving().rungs()) {
    context.out() << fmt::format("  epoch {}: {} of {} have reached it; the best {} by {} go on\n",
                                 rung.epoch(), rung.results_size(), sweep.members(), rung.kept(),
                                 sweep.halving().metric());
  }
}

/// What the jobs differ in.
std::vector<std::string> SettingNames(const std::vector<v1::Job>& jobs) {
  std::vector<std::string> names;
  for (const auto& job : jobs) {
    for (const auto& setting : job.sweep_settings()) {
      if (std::find(names.begin(), names.end(), setting.name()) == names.end())
        names.push_back(setting.name());
    }
  }
  return names;
}

/// `wide` adds the other figures, how often a job was started and whose it is, and cuts nothing.
void PrintTable(Context& context, const v1::Sweep& sweep, const std::vector<v1::Job>& jobs, bool wide) {
  const Measure measure = MeasureOf(sweep);
  const v1::Job* best = BestOf(jobs, measure);
  const auto names = SettingNames(jobs);
  std::vector<Measure> others = wide ? AllMeasures() : std::vector<Measure>{};
  std::erase_if(others, [&measure](const Measure& other) { return other.title == measure.title; });
  std::vector<Column> columns = {{"ID", true}, {.title = "NAME", .shrink = !wide}};
  for (const auto& name : names) columns.push_back({.title = Printable(name)});
  columns.insert(columns.end(), {{"STATE"}, {"PROGRESS"}, {"EPOCH", true}, {measure.title, true}, {"BEST"}});
  for (const auto& other : others) columns.push_back({other.title, true});
  if (wide) columns.insert(columns.end(), {Column{"STARTS", true}, Column{"OWNER"}});
  columns.push_back({.title = "REASON", .shrink = !wide});
  Table table(std::move(columns));
  for (const auto& job : jobs) {
    std::vector<Cell> row = {Cell(std::to_string(job.id())), Cell(job.name())};
    for (const auto& name : names) {
      const auto& settings = job.sweep_settings();
      const auto own = std::find_if(settings.begin(), settings.end(),
                                    [&name](const auto& setting) { return setting.name() == name; });
      row.emplace_back(own == settings.end() ? "" : Printable(own->value()));
    }
    row.insert(row.end(), {Cell(StateName(job.state()), StyleOf(job.state())), Cell(ProgressText(job)),
                           Cell(job.has_last_epoch() ? std::to_string(job.last_epoch().epoch()) : ""),
                           Cell(FigureOf(job, measure)), Cell(&job == best ? "best" : "", Style::kGood)});
    for (const auto& other : others) row.emplace_back(FigureOf(job, other));
    if (wide) row.insert(row.end(), {Cell(std::to_string(job.generation())), Cell(Printable(job.owner()))});
    row.emplace_back(job.reason_text(), Style::kDim);
    table.Add(std::move(row));
  }
  table.Print(context.out(), context.terminal());
}

/// "12 of 27 ended: 10 COMPLETED, 2 FAILED, 9 RUNNING; the best so far is rn18[4], TOP-1 71.2 %".
std::string SweepProgress(const v1::Sweep& sweep, const std::vector<v1::Job>& jobs) {
  const auto ended =
      std::count_if(jobs.begin(), jobs.end(), [](const auto& job) { return IsFinal(job.state()); });
  std::string text = fmt::format("{} of {} ended: {}", ended, jobs.size(), StatesText(jobs));
  const Measure measure = MeasureOf(sweep);
  if (const v1::Job* best = BestOf(jobs, measure)) {
    text += fmt::format("; the best so far is {}, {} {}", Printable(best->name()), measure.title,
                        FigureOf(*best, measure));
  }
  return text;
}

int ExitCodeOf(const std::vector<v1::Job>& jobs) {
  for (const auto& job : jobs) {
    if (const int code = ExitCodeOfState(job.state()); code != 0) return code;
  }
  return 0;
}

int RunSweep(Context& context, const std::string& reference, OutputFormat format, bool watch) {
  if (watch) context.FollowUntilInterrupted();
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  auto sweep = FindSweep(**client, reference);
  if (!sweep) return context.Fail(sweep.error());
  if (watch) return FollowSweep(context, **client, *sweep, /*ending=*/false);
  auto jobs = JobsOf(**client, *sweep);
  if (!jobs) return context.Fail(jobs.error());
  if (IsDocument(format)) {
    nlohmann::ordered_json document;
    document["sweep"] = ToJson(*sweep);
    document["jobs"] = ToJsonArray(*jobs);
    PrintDocument(context.out(), document, format);
    return 0;
  }
  PrintHead(context, *sweep, *jobs);
  PrintTable(context, *sweep, *jobs, format == OutputFormat::kWide);
  return 0;
}

}  // namespace

int FollowSweep(Context& context, Client& client, const v1::Sweep& sweep, bool ending) {
  std::string shown;
  std::optional<Instant> away_since;
  while (true) {
    const Instant began = std::chrono::steady_clock::now();
    const auto jobs = JobsOf(client, sweep);
    if (context.interrupt().Triggered()) break;
    if (jobs) {
      away_since.reset();
      const std::string progress = SweepProgress(sweep, *jobs);
      if (!ending && progress != shown) context.out() << progress << std::endl;
      shown = progress;
      if (std::all_of(jobs->begin(), jobs->end(), [](const auto& job) { return IsFinal(job.state()); })) {
        if (!ending) PrintTable(context, sweep, *jobs, /*wide=*/false);
        return ExitCodeOf(*jobs);
      }
    } else {
      const bool first = !away_since;
      away_since = away_since.value_or(began);
      if (!IsOutage(jobs.error()) || (context.timeout && began - *away_since > *context.timeout))
        return context.Fail(jobs.error());
      if (first)
        context.Say(fmt::format("imgd at {} does not answer; trying again", client.address().target),
                    Style::kWarn);
    }
    // Of a large sweep the answer is long: most of the time imgd is left alone.
    const Duration took = std::chrono::steady_clock::now() - began;
    if (context.interrupt().WaitFor(
            std::max<Duration>(std::chrono::seconds(1), jobs ? took * 10 : kAwayPause)))
      break;
  }
  if (ending) {
    context.Say(fmt::format("no longer waiting; {} is being cancelled", SweepTitle(sweep)));
  } else {
    context.Say(fmt::format("no longer watching; {} goes on ({} ends it)", SweepTitle(sweep),
                            context.Suggest(fmt::format("cancel --sweep {}", sweep.id()))));
  }
  return context.interrupt().ExitCode();
}

void AddSweepCommand(Command app, Context& context) {
  struct Options {
    std::string sweep;
    OutputFormat format = OutputFormat::kTable;
    bool watch = false;
  };
  auto options = std::make_shared<Options>();
  Command command =
      app.AddSubcommand("sweep", "Show a sweep: its jobs, what they differ in, which is the best");
  command.AddOption("SWEEP", options->sweep, "Its name, or the number of one of its jobs")
      .Required()
      .ValueName("");
  command.AddFlag("--watch", options->watch, "Tell how far its jobs are until all have ended");
  AddOutputOption(command, options->format);
  command.Footer(
      "The figures are those of each job's newest validation. A sweep is made by sweep: in a job file\n"
      "(docs/job-file.md).\n\n"
      "Examples:\n"
      "  imgcli sweep rn18\n"
      "  imgcli sweep rn18 --watch\n"
      "  imgcli sweep 17 -o json | jq -r '.jobs[] | [.id, .last_epoch.val_top1] | @tsv'\n"
      "  imgcli cancel --sweep rn18");
  command.Runs(
      [&context, options] { return RunSweep(context, options->sweep, options->format, options->watch); });
}

}  // namespace imgd::cli
